"""`python -m gateway` is the command `onceway`."""

from gateway.commands.main import main

main()
