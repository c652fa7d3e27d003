"""The pages for an organization's directory."""
