"""The pages of a user's own account."""
