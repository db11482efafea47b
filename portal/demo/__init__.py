"""The demo federation: emulated systems, people and credits, all on this machine."""
