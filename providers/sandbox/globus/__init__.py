"""A stand-in of Globus Auth and Globus Compute on this machine, for the unmodified SDKs to talk to."""
