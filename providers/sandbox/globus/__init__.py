"""A stand-in of Globus Auth, Compute and Transfer on this machine, for the unmodified SDKs to talk to."""
