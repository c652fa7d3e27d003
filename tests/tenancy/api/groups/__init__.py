"""Groups of an organization."""
