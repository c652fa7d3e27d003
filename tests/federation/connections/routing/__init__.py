"""The ways that lead users to the connection of their organization."""
