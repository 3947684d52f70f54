"""`onceway user …`: who may connect with which password."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.config import load
from gateway.errors import OncewayError
from gateway.service.users import Users
from gateway.store.cli import JsonOption

app = typer.Typer(help="Users of the gateway: add, remove, list.", no_args_is_help=True)

FileOption = Annotated[Path | None, typer.Option("--file", help="The file of users.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="The gateway's TOML file, which names the file of users.")]


def _users(file: Path | None, config: Path | None) -> Users:
    if file is not None and config is None:
        return Users(file)
    if config is not None and file is None:
        return Users(load(config).users_file)
    raise OncewayError("which users?", hint="Name them with --config FILE, or --file FILE")


@app.command()
def add(
    name: str,
    file: FileOption = None,
    config: ConfigOption = None,
    password_stdin: Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")] = False,
) -> None:
    """Add a user, or change its password. The gateway reads the file at its start and on SIGHUP.

    Example: onceway user add alice --config /etc/onceway/gateway.toml
    """
    users = _users(file, config)
    password = sys.stdin.readline().rstrip("\n") if password_stdin else typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    users.add(name, password)
    typer.echo(f"{name} is in {users.path}")


@app.command()
def remove(name: str, file: FileOption = None, config: ConfigOption = None) -> None:
    """Remove a user. Its connections stay until the gateway reads the file again.

    Example: onceway user remove alice --config /etc/onceway/gateway.toml
    """
    users = _users(file, config)
    users.remove(name)
    typer.echo(f"{name} is no longer in {users.path}")


@app.command("list")
def list_users(file: FileOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the names.

    Example: onceway user list --config /etc/onceway/gateway.toml
    """
    names = sorted(_users(file, config).hashes)
    typer.echo(json.dumps(names) if as_json else "\n".join(names))
