"""Tests for access to applications: policies, users and groups."""
