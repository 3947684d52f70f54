"""`python -m gateway` is the command `onceway`."""

from gateway.cli import main

main()
