"""Placement: which system, partition, account and shape a task gets, and why; a pure function."""
