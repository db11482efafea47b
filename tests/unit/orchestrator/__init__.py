"""Tests of the orchestrator's pure parts."""
