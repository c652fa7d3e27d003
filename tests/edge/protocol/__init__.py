"""Tests for the HTTP server: its sockets and its parser."""
