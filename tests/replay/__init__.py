"""Recorded inputs and the exact bytes they gave."""
