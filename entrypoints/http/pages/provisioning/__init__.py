"""The pages of the directory of an organization."""
