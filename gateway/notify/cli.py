"""`onceway notify …`: try whether notifications arrive."""

import json

import typer

from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    ask_running,
    running_folder,
)

app = typer.Typer(help="Test the notifications about problems.", no_args_is_help=True)


@app.command("test")
def try_channels(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Let the running gateway send a test message on each configured channel.

    Example: onceway notify test
    """
    folder = running_folder(data, config)
    found = ask_running(folder, do="notify-test")
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"the test message was accepted by: {', '.join(found['channels'])}")
