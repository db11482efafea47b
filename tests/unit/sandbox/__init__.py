"""Tests of the emulated sites."""
