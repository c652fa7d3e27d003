"""Passkeys in tests."""
