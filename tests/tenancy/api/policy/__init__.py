"""Tests of the sign-in policy of organizations and applications."""
