"""`onceway clock …`: the time of day as the gateway knows it."""

import json
from typing import Any

import typer

from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    ask_running,
    running_folder,
)
from gateway.payload.readings import iso

app = typer.Typer(
    help="The time of day as the gateway knows it: show it, or declare the clock right.",
    no_args_is_help=True,
)


@app.command()
def show(data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the time of the system and of the gateway. Exit code 1: the gateway does not know the
    time, or does not believe the system clock.

    Example: onceway clock show
    """
    _tell(ask_running(running_folder(data, config), do="clock"), as_json)


@app.command()
def trust(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Declare the system clock right, for example if the machine was off for more than a year: the
    gateway believes the time from now on. Sessions expire by the gateway's own clock, as before.

    Example: sudo onceway clock trust
    """
    _tell(ask_running(running_folder(data, config), do="clock", text="trust"), as_json)


def _tell(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"system:  {iso(found['system'])}")
        known = found["utc"] is not None
        typer.echo(f"gateway: {iso(found['utc']) if known else 'does not know the time'}")
        if found["doubt"]:
            typer.echo(found["doubt"])
    if found["utc"] is None or found["doubt"]:
        raise typer.Exit(1)
