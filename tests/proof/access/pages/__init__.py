"""Every page of the console, with the data of an organization that has a row in each table."""
