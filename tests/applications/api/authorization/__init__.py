"""Permissions and roles of applications, and their users."""
