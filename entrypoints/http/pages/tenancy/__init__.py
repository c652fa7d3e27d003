"""The pages for an organization itself, and for its invitations."""
