"""Logos for organizations, applications and identity providers."""
