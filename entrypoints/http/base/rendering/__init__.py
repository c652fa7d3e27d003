"""HTML pages, and the assets that they load."""
