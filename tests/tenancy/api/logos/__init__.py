"""Logos of organizations, applications and identity providers."""
