"""The ways that lead users to their organization's connection."""
