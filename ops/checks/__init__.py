"""Checks on the repository's own text, run by `./run check`. Every check is a module with a `main`, and needs the standard library only."""
