"""The passphrase of a backup: from the environment or the terminal, never from the command line,
which every user of the machine can see.
"""

import os
import warnings
from getpass import GetPassWarning

import typer

from gateway.errors import OncewayError

PASSPHRASE = "ONCEWAY_PASSPHRASE"  # noqa: S105 - the variable's name


def ask_passphrase(twice: bool) -> str:
    """Return the passphrase: from the environment variable PASSPHRASE, else from the terminal.
    twice: whether it must be typed twice, because a backup with a mistyped passphrase is lost.
    """
    passphrase = os.environ.get(PASSPHRASE)
    if passphrase is None:
        try:
            with warnings.catch_warnings():
                # no terminal: the typed text would be visible
                warnings.simplefilter("error", GetPassWarning)
                passphrase = str(
                    typer.prompt("Passphrase", hide_input=True, confirmation_prompt=twice, err=True)
                )
        except (typer.Abort, GetPassWarning):
            raise OncewayError(
                "there is no passphrase",
                hint=f"Type one at the terminal, or put it into {PASSPHRASE}",
            ) from None
    if not passphrase:
        raise OncewayError("the passphrase is empty")
    return passphrase
