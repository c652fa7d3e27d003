"""Tests for the invitation API."""
