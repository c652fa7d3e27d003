"""Tests of the service under a supervisor, and on a Unix socket."""
