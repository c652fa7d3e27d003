"""Tests of access to applications: policies, users and groups."""
