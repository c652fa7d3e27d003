"""Entities and pure rules of the area."""
