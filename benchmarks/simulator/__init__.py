"""A seedable simulator of several Slurm-like clusters: shapes, load, scheduling, what a user sees."""
