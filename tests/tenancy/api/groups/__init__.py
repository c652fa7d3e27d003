"""An organization's groups."""
