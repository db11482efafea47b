"""Batch scripts read as requests: the directives of each dialect, and what the body says."""
