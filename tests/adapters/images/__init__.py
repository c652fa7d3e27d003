"""Decoding of uploaded images."""
