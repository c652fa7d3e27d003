"""Generators for the reference documentation."""
