"""Tests of the pages as a whole, in a browser."""
