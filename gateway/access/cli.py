"""`onceway user …`: users and their passwords."""

import json
import sys
import warnings
from getpass import GetPassWarning
from pathlib import Path
from typing import Annotated

import typer

from gateway.access.users import Users, UsersError
from gateway.commands.control_client import NotRunning, ask
from gateway.commands.options import ConfigOption, JsonOption, config_file, folder_of, nothing_named
from gateway.config import load
from gateway.errors import OncewayError, UsageError

app = typer.Typer(help="Users of the gateway: add, remove, list.", no_args_is_help=True)

LEAST = 8
"""Shortest password, in characters."""

NameArgument = Annotated[str, typer.Argument(help="The user's name.")]
FileOption = Annotated[Path | None, typer.Option("--file", help="The file of users.")]


def _users(file: Path | None, config: Path | None) -> Users:
    if file is not None and config is not None:
        raise UsageError("--file and --config exclude each other", hint="Use one of the two")
    if file is not None:
        return Users(file)
    if (found := config_file(config)) is not None:
        return Users(load(found).users_file)
    raise nothing_named(
        "Name the configuration with --config FILE, or a file of users with --file FILE"
    )


@app.command()
def add(
    name: NameArgument,
    file: FileOption = None,
    config: ConfigOption = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add a user, or change a user's password. A password has at least 8 characters. Without
    --file, a running gateway accepts the user at once.

    Example: onceway user add alice
    """
    users = _users(file, config)
    password = sys.stdin.readline().rstrip("\n") if password_stdin else _ask()
    if 0 < len(password) < LEAST:
        raise UsersError(f"the password has fewer than {LEAST} characters", hint="Use a longer one")
    users.add(name, password)
    _tell(name, f"is in {users.path}", file, config, as_json)


def _tell(name: str, text: str, file: Path | None, config: Path | None, as_json: bool) -> None:
    """Make a running gateway read the file of users again, and print the result. Exits with code 1
    if a gateway runs, but has not accepted the file.
    """
    accepted, refused, why = False, None, ""
    try:
        if file is None:
            (found,) = ask(folder_of(None, config), do="reload")
            refused = found["wrong"]
            accepted, why = refused is None, "; the running gateway has read this change"
    except NotRunning:
        why = "; a gateway reads this change at its next start"
    except OncewayError as error:
        refused = str(error)
    if refused is not None:
        why = f"; the running gateway has not accepted this change: {refused}"
    if as_json:
        typer.echo(json.dumps({"user": name, "taken": accepted}))
    else:
        typer.echo(f"{name} {text}{why}")
    if refused is not None:
        raise typer.Exit(1)


def _ask() -> str:
    try:
        with warnings.catch_warnings():
            # without a terminal, the typed password would be visible
            warnings.simplefilter("error", GetPassWarning)
            return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    except (typer.Abort, GetPassWarning):
        raise OncewayError(
            "there is no password",
            hint="Type one at the terminal, or pipe it in with --password-stdin",
        ) from None


@app.command()
def remove(
    name: NameArgument,
    file: FileOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a user. Without --file, a running gateway ends the user's connections at once.

    Example: onceway user remove alice
    """
    users = _users(file, config)
    users.remove(name)
    _tell(name, f"is no longer in {users.path}", file, config, as_json)


@app.command("list")
def list_users(
    file: FileOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show the names of all users.

    Example: onceway user list
    """
    users = _users(file, config)
    names = sorted(users.hashes)
    if as_json:
        typer.echo(json.dumps(names))
    else:
        typer.echo(
            "\n".join(names) or f"no users in {users.path}; add one with `onceway user add NAME`"
        )
