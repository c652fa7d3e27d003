"""Application permissions and roles, and their users."""
