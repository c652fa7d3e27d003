"""Supervised tasks that run beside the HTTP server, and do the work that is stored in the database. Each has one module."""
