"""Tests for the sign-in policies of organizations and applications."""
