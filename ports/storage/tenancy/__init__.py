"""The storage port for tenancy: organizations, members, invitations and their settings."""
