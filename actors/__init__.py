"""Supervised tasks that do durable work beside the HTTP server: one module per actor, each with a mailbox."""
