"""Supervised tasks that run beside the HTTP server, and do the work that is stored in the database. Every actor has its own module."""
