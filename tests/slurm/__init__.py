"""Tests on real Slurm daemons, and the laboratory that runs them."""
