"""The pages of sign-ins in progress."""
