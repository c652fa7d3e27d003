"""The pages of logs and of outgoing events."""
