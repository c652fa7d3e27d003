"""The effect of each route, held against the rows that its requests leave changed."""
