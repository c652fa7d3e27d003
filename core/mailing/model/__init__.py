"""The area's entities and pure rules."""
