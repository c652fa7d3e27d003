"""The pages and endpoints for browsers."""
