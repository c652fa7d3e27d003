"""Checks of the repository's own text, run by `./run check`. Each is a module with a `main`, and needs the standard library only."""
