"""The pages of an organization itself, and of its invitations."""
