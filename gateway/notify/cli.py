"""`onceway notify …`: try whether notifications arrive."""

import json

import typer

from gateway.commands.control_client import NotRunning, ask
from gateway.commands.options import ConfigOption, DataOption, JsonOption, running_folder
from gateway.errors import OncewayError

app = typer.Typer(help="Notifications of problems: try them.", no_args_is_help=True)


@app.command("test")
def try_channels(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Let the running gateway send a test on each way that [notify] names.

    Example: onceway notify test
    """
    folder = running_folder(data, config)
    try:
        (found,) = ask(folder, do="notify-test")
    except NotRunning:
        raise OncewayError(
            "no gateway runs here", str(folder), "Start it: sudo systemctl start onceway-gateway"
        ) from None
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"a test was taken by: {', '.join(found['channels'])}")
