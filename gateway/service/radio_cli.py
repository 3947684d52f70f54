"""`onceway radio …`: the radios of a running gateway, asked over its control socket; and what
`gateway/links/lora/cli.py` works out without one.
"""

import json
from typing import Any

import typer

from gateway.errors import OncewayError
from gateway.links.lora.cli import plan
from gateway.options import ConfigOption, DataOption, JsonOption, folder_of
from gateway.service import control

app = typer.Typer(help="LoRa: plan a site, look at its radios.", no_args_is_help=True)
app.command()(plan)


@app.command()
def status(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Say how the radios of the running gateway are doing: airtime of the last hour, frames, and
    how each board was heard last. Exit code 1 when one of them does not work.

    Example: onceway radio status
    """
    folder = folder_of(data, config)
    try:
        found = control.ask(folder, do="radios")
    except control.NotRunning:
        raise OncewayError(
            "no gateway runs here",
            str(folder),
            "Start it, or see its log: journalctl -u onceway-gateway",
        ) from None
    if as_json:
        typer.echo(json.dumps(found))
    elif not found:
        typer.echo("no radios: a [[lora]] section names one")
    else:
        for radio in found:
            typer.echo(_text(radio))
    if any(not radio["is_open"] for radio in found):
        raise typer.Exit(1)


def _text(radio: dict[str, Any]) -> str:
    share = radio["used"] / radio["limit"]
    lines = [
        f"{radio['path']}: {radio['problem'] or radio['told']}",
        f"  law     {radio['rule']}",
        f"  hour    {radio['used']:.1f} of {radio['limit']:.1f} s sent: {share:.0%} of its budget",
        "  frames  " + (", ".join(f"{n} {what}" for what, n in radio["counts"].items()) or "none"),
    ]
    for board in radio["boards"]:
        here = "in session" if board["name"] in radio["connected"] else "no session"
        told = [f"{board['age']:.0f} s ago", here]
        if board["rssi"] is not None:
            told.append(f"{board['rssi']:.0f} dBm, SNR {board['snr']:.1f} dB")
        told.append(f"{board['airtime']:.1f} s of its frames within an hour")
        lines.append(f"  {board['name']}: heard {', '.join(told)}")
    return "\n".join(lines)
