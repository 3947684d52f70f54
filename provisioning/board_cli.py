"""`onceway board …`: the commands that show kinds of board and connected boards."""

import json
import os
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from gateway.errors import OncewayError
from provisioning import exclusive, ports
from provisioning.boards import catalogue
from provisioning.lending import borrowed
from provisioning.options import Json, RegistryFile, gateway_folder
from provisioning.output import print_table
from provisioning.probe import probe

app = typer.Typer(
    help="The board catalogue, and the boards that are plugged in.", no_args_is_help=True
)


@app.command("list")
def list_boards(as_json: Json = False) -> None:
    """Show the kinds of board that can be flashed.

    Example: onceway board list
    """
    if as_json:
        print(json.dumps([entry.model_dump() for entry in catalogue().values()], indent=2))
        return
    table = Table("name", "board", "chip", "boot loader", "room for firmware", "link", "firmware")
    for entry in catalogue().values():
        chip = f"{entry.chip_title}, {entry.clock // 1_000_000} MHz"
        loader = f"{entry.programmer}, {entry.baud} baud"
        table.add_row(
            entry.name,
            entry.title,
            chip,
            loader,
            f"{entry.identity} bytes",
            f"{entry.link_baud} baud",
            str(entry.hex_file),
        )
    print_table(table)


@app.command("ports")
def list_ports(as_json: Json = False) -> None:
    """Show the serial ports, with the board at each and the program that uses it.

    Example: onceway board ports --json
    """
    plugged = ports.plugged()
    if as_json:
        print(json.dumps([asdict(entry) for entry in plugged], indent=2))
        return
    if not plugged:
        print("no serial port found. Plug a board in; if no port appears, see `dmesg`")
        return
    table = Table("port", "stable name", "looks like", "description", "held by")
    for entry in plugged:
        table.add_row(
            entry.port,
            entry.stable or "",
            ", ".join(entry.boards),
            entry.description,
            ", ".join(entry.held_by),
        )
    print_table(table)


@app.command("probe")
def probe_port(
    port: Annotated[str, typer.Option(help="The serial port of the board.")],
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Find out which kind of board is at a port, from the rate and protocol of its boot loader and
    the signature of its chip. This resets the board and writes nothing. It takes up to half a
    minute. A running gateway lends the port.

    Example: onceway board probe --port /dev/ttyUSB0
    """
    path = os.path.realpath(port)
    likely = {name for entry in ports.plugged() if entry.port == path for name in entry.boards}
    kinds = catalogue().values()
    folder = None if _is_free(port) else gateway_folder(registry)
    with borrowed(folder, port) if folder else nullcontext():
        ports.look(port)
        with exclusive.port(port):
            ports.check(port)
            ports.drop_dtr(port)
            found = probe(port, [one for one in kinds if not likely or one.name in likely])
    if not found:
        raise OncewayError(
            "no boot loader answers",
            port,
            "A bare chip has none, and a chip that was written with a programmer may have lost it."
            " Press the reset button as the command starts",
        )
    if as_json:
        print(json.dumps([one.name for one in found]))
        return
    print(f"{port}: the board is one of these; name its kind with --board")
    for one in found:
        print(f"  {one.name}: {one.title}")


def _is_free(port: str) -> bool:
    """Whether no gateway has to be asked for the port, which needs a right: the port can be opened
    now, or is missing.
    """
    if not os.path.exists(port):
        return True
    try:
        ports.check(port)
    except OncewayError:
        return False
    return True
