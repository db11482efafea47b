"""A seedable simulator of several Slurm-like clusters: shapes, load, scheduling, and what a user sees of it."""
