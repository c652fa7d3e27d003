"""`python -m gatehouse`, with which the archive starts the command."""

from gatehouse import main

main()
