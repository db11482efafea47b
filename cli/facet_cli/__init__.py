"""The command line of Facet and the bridge that wakes coding agents."""
