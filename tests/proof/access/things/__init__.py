"""Things in the access tests' world, by kind."""
