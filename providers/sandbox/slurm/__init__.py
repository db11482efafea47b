"""An emulated Slurm: its programs over a small state, with real execution of submitted scripts."""
