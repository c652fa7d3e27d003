"""`python -m gatehouse`, with which the archive starts the command."""

from . import main

main()
