"""What admins do with members and invitations in the console."""
