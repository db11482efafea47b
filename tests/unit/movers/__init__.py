"""What moves data on this machine, and the rules around it."""
