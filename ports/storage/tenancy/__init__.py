"""The storage port of tenancy: organizations, members, invitations and their settings."""
