"""The pages on which people sign in."""
