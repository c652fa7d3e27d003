"""The effect of each route, compared with the rows that its requests leave changed."""
