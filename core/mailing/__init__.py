"""Emails: their preparation, and samples."""
