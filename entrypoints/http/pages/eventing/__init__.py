"""The pages for logs and outgoing events."""
