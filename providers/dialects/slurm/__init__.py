"""Slurm 20.11 to 25.11, text and JSON."""
