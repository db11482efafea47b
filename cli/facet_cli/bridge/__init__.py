"""The bridge: follows events and wakes agents, once for each thing that happened."""
