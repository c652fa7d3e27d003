"""Passkeys of tests."""
