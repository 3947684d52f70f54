"""`onceway retained …`: the last message of each topic, for new subscribers."""

import json
from dataclasses import asdict

import typer

from gateway.commands.options import ConfigOption, DataOption, JsonOption, folder_of
from gateway.runtime.clock import Clock
from gateway.store import views
from gateway.system.logs import printable

app = typer.Typer(help="Retained messages of the gateway.", no_args_is_help=True)


@app.command("list")
def list_retained(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show the retained messages in the store, by topic. The gateway may run meanwhile; changes
    after its last commit are not shown.

    Example: onceway retained list
    """
    found = views.retained(folder_of(data, config), Clock(trust=False).utc())
    if as_json:
        typer.echo(json.dumps([asdict(item) for item in found]))
        return
    if not found:
        typer.echo("no retained messages")
    for item in found:
        expires = "" if item.expires_s is None else f", expires in {item.expires_s} s"
        typer.echo(
            f"{printable(item.topic)}  QoS {item.qos}, {item.bytes} bytes from"
            f" {printable(item.client)}{expires}"
        )
