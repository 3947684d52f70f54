"""`onceway readings`: the last readings of boards, from the running gateway."""

import csv
import json
import sys
from typing import Annotated, Any

import typer

from gateway.boards.intervals import parse, words
from gateway.commands.completion import devices
from gateway.commands.control_client import NotRunning, ask
from gateway.commands.options import (
    ConfigOption,
    DataOption,
    JsonOption,
    no_gateway,
    running_folder,
)
from gateway.errors import Unknown, UsageError
from gateway.system.logs import printable

app = typer.Typer()


COLUMNS = ("device", "name", "time", "value", "unit", "ago_s")
"""The columns of --csv. While the clock is not synchronised, `time` is empty, but `ago_s` is
known.
"""


@app.command("readings")
def readings(
    device: Annotated[
        str, typer.Argument(help="A board; by default, all boards.", autocompletion=devices)
    ] = "",
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Show all values of the last TIME, such as 2h or 1d. The gateway keeps about a day"
            " if a value comes every minute.",
            show_default="the last one of each name",
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a header line.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last readings of a board, or of all boards. The table at the centre has all
    readings. Exit code 5: there is no such board.

    Example: onceway readings roof-1 --since 1d --csv
    """
    if since is not None and parse(since) is None:
        raise UsageError(f"{since!r} is not a time", "--since", "Such as 90s, 5m, 2h or 1d")
    if as_csv and as_json:
        raise UsageError("--csv and --json exclude each other", hint="Use one of the two")
    folder = running_folder(data, config)
    try:
        found = ask(folder, do="readings", client=device, interval=since or "")
    except NotRunning:
        raise no_gateway(folder) from None
    if not found:
        raise Unknown("there is no such board here", device, "See: onceway status")
    kept, rows = found[0], found[1:]
    if as_json:
        typer.echo(json.dumps(kept | {"readings": rows}, indent=2))
        return
    if as_csv:
        out = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
    else:
        for row in rows:
            typer.echo(_line(row))
    if not rows:
        typer.echo("no readings yet" if since is None else f"no readings within {since}", err=True)
    if since is not None and kept["cut"]:
        before, age = kept["kept_since"], kept["kept_s"]
        if before is None and age is not None:
            before = f"{words(age)} ago"
        absent = (
            "no numeric readings are" if before is None else f"readings before {before} are not"
        )
        typer.echo(f"{absent} kept here; the table has all readings", err=True)


def _line(row: dict[str, Any]) -> str:
    unit = f" {row['unit']}" if row["unit"] else ""
    value = printable(f"{row['value']}{unit}")
    time = row["time"]
    if time is None:
        time = "unknown time" if row["ago_s"] is None else f"{words(row['ago_s'])} ago"
    return f"{row['device']:24} {printable(row['name']):16} {time:28} {value}"
