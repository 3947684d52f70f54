"""`onceway radio …`: the radios of a running gateway, queried over its control socket; and the
calculations of `gateway/links/lora/plan_cli.py`, which need no gateway.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.commands import control_client as control
from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    no_gateway,
    running_folder,
)
from gateway.errors import OncewayError, UsageError
from gateway.links.lora.plan_cli import plan
from gateway.system.durations import seconds

app = typer.Typer(help="LoRa: plan a site, and inspect its radios.", no_args_is_help=True)
app.command()(plan)

_SHOWN = 12
"""Largest number of bytes of a frame that are shown."""


@app.command()
def status(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show the state of the running gateway's radios: airtime of the last hour, frames, and the
    last signal of each board. Exit code 1 if a radio does not work.

    Example: onceway radio status
    """
    folder = running_folder(data, config)
    with _running(folder):
        found = control.ask(folder, do="radios")
    if as_json:
        typer.echo(json.dumps(found))
    elif not found:
        typer.echo("no radios: a [[lora]] section adds one")
    else:
        for radio in found:
            typer.echo(_text(radio))
    if any(not radio["is_open"] for radio in found):
        raise typer.Exit(1)


@app.command()
def listen(
    length: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to listen, such as 2h.")
    ] = "10m",
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show each frame that the radios of the running gateway hear, and whether it was accepted.
    Frames of foreign stations are shown, too. The command ends after the time of --for, or when you
    press Ctrl-C. Frames are encrypted; their contents are not shown.

    Example: onceway radio listen
    """
    try:
        end = time.monotonic() + seconds(length)
    except ValueError as error:
        raise UsageError(str(error), "--for") from None
    folder = running_folder(data, config)
    with _running(folder):
        if not control.ask(folder, do="radios"):
            raise OncewayError("no radios: a [[lora]] section adds one", str(folder))
        try:
            for frame in control.follow(folder, do="listen"):
                if frame:
                    heard = datetime.now(UTC)
                    line = json.dumps({"utc": heard.timestamp()} | frame)
                    print(line if as_json else f"{heard:%H:%M:%S}  {_line(frame)}", flush=True)
                if time.monotonic() >= end:  # a row comes every five seconds at least
                    return
        except KeyboardInterrupt:
            return


@contextmanager
def _running(folder: Path) -> Iterator[None]:
    try:
        yield
    except control.NotRunning:
        raise no_gateway(folder) from None


def _line(frame: dict[str, Any]) -> str:
    data = bytes.fromhex(frame["frame"])
    signal = (
        "" if frame["rssi"] is None else f"{frame['rssi']:4.0f} dBm, SNR {frame['snr']:5.1f} dB"
    )
    return "  ".join(
        (
            signal,
            f"{len(data):3d} bytes",
            frame["device"] or "-",
            frame["result"],
            data[:_SHOWN].hex() + ("…" if len(data) > _SHOWN else ""),
        )
    )


def _text(radio: dict[str, Any]) -> str:
    share, full = radio["used"] / radio["limit"], radio["load"] / radio["workable"]
    lines = [
        f"{radio['path']}: {radio['problem'] or radio['told']}",
        f"  law     {radio['rule']}",
        f"  hour    {radio['used']:.1f} of {radio['limit']:.1f} s sent: {share:.0%} of its budget",
        f"  heard   {radio['load']:.1f} s within an hour: {full:.0%} of the"
        f" {radio['workable']:.0f} s that a full channel carries",
        *(f"  warning {text}" for text in radio["warnings"]),
        "  frames  "
        + (", ".join(f"{n} {result}" for result, n in radio["counts"].items()) or "none"),
    ]
    for board in radio["boards"]:
        session = "in session" if board["name"] in radio["connected"] else "no session"
        parts = [f"{board['age']:.0f} s ago", session]
        if board["rssi"] is not None:
            parts.append(f"{board['rssi']:.0f} dBm, SNR {board['snr']:.1f} dB")
        parts.append(f"{board['airtime']:.1f} s of airtime within an hour")
        lines.append(f"  {board['name']}: heard {', '.join(parts)}")
    return "\n".join(lines)
