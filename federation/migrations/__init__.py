"""Migrations of this layer."""
