"""Generators of the reference documentation."""
