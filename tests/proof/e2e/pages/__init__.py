"""Tests with whole pages, in a browser."""
