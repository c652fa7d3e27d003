"""Things of the world in the access tests, by kind."""
