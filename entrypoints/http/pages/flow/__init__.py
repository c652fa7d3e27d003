"""The pages for sign-ins in progress."""
