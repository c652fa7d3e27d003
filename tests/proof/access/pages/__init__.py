"""Every console page, with the data of an organization that has rows in all tables."""
