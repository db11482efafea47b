"""Real, independent Slurm clusters on one machine, from Debian's packages."""
