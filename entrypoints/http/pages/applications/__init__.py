"""The pages of an organization's applications."""
