"""Placement: which system, partition, account and shape a task should get, and why; a pure function of facts."""
