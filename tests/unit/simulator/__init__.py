"""Placement on small federations, figure by figure."""
