"""Tests with the service under a supervisor, on a Unix socket, and across an upgrade."""
