"""Decoding uploaded images."""
