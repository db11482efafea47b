"""Invariants of placement, each with mutants that must die of it."""
