"""Tests of the HTTP server: its sockets and its parser."""
