"""The pages for a user's own account."""
