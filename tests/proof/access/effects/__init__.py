"""Every route's effect, compared with the rows that its requests leave changed."""
