"""The pages for an organization's applications."""
