"""`onceway user …`: who may connect with which password."""

import json
import sys
import warnings
from getpass import GetPassWarning
from pathlib import Path
from typing import Annotated

import typer

from gateway.access.users import Users
from gateway.commands.options import ConfigOption, JsonOption, config_file, nothing_named
from gateway.config import load
from gateway.errors import OncewayError

app = typer.Typer(help="Users of the gateway: add, remove, list.", no_args_is_help=True)

FileOption = Annotated[Path | None, typer.Option("--file", help="The file of users.")]


def _users(file: Path | None, config: Path | None) -> Users:
    if file is not None and config is not None:
        raise OncewayError("--file and --config name a file each", hint="Use one of the two")
    if file is not None:
        return Users(file)
    if (found := config_file(config)) is not None:
        return Users(load(found).users_file)
    raise nothing_named("Name one with --config FILE, or a file of users with --file FILE")


@app.command()
def add(
    name: str,
    file: FileOption = None,
    config: ConfigOption = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
) -> None:
    """Add a user, or change its password. The gateway reads the file at its start and on SIGHUP.

    Example: onceway user add alice
    """
    users = _users(file, config)
    users.add(name, sys.stdin.readline().rstrip("\n") if password_stdin else _ask())
    typer.echo(f"{name} is in {users.path}")


def _ask() -> str:
    try:
        with warnings.catch_warnings():
            # no terminal: what is typed would be seen
            warnings.simplefilter("error", GetPassWarning)
            return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    except (typer.Abort, GetPassWarning):
        raise OncewayError(
            "there is no password",
            hint="Type one at the terminal, or pipe it in with --password-stdin",
        ) from None


@app.command()
def remove(name: str, file: FileOption = None, config: ConfigOption = None) -> None:
    """Remove a user. Its connections stay until the gateway reads the file again.

    Example: onceway user remove alice
    """
    users = _users(file, config)
    users.remove(name)
    typer.echo(f"{name} is no longer in {users.path}")


@app.command("list")
def list_users(
    file: FileOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show the names.

    Example: onceway user list
    """
    users = _users(file, config)
    names = sorted(users.hashes)
    if as_json:
        typer.echo(json.dumps(names))
    else:
        typer.echo(
            "\n".join(names) or f"no users in {users.path}; `onceway user add NAME` makes one"
        )
