"""`onceway board …`: which kinds of board there are, and what is plugged in."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from serial.tools.list_ports import comports

from provisioning.boards import by_usb, catalogue
from provisioning.ports import holders

app = typer.Typer(help="The board catalogue, and the boards that are plugged in.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@dataclass(frozen=True, slots=True)
class Plugged:
    """A serial port. stable: its name under /dev/serial/by-id, which stays when ports are plugged in another order."""

    port: str
    stable: str | None
    board: str | None
    description: str
    held_by: list[str]


@app.command("list")
def list_boards(as_json: Json = False) -> None:
    """Show the kinds of board that can be flashed.

    Example: onceway board list
    """
    if as_json:
        print(json.dumps([entry.model_dump() for entry in catalogue().values()], indent=2))
        return
    table = Table("name", "board", "chip", "boot loader", "room for firmware")
    for entry in catalogue().values():
        table.add_row(entry.name, entry.title, entry.chip_title, f"{entry.programmer}, {entry.baud} baud", f"{entry.identity} bytes")
    Console().print(table)


@app.command("ports")
def list_ports(as_json: Json = False) -> None:
    """Show the serial ports: which board each looks like, and who holds it.

    Example: onceway board ports --json
    """
    plugged = _plugged()
    if as_json:
        print(json.dumps([asdict(entry) for entry in plugged], indent=2))
        return
    table = Table("port", "stable name", "looks like", "description", "held by")
    for entry in plugged:
        table.add_row(entry.port, entry.stable or "", entry.board or "", entry.description, ", ".join(entry.held_by))
    Console().print(table if plugged else "no serial port here; plug a board in, and see `dmesg` if it stays away")


def _plugged() -> list[Plugged]:
    by_id = Path("/dev/serial/by-id")
    stable = {path.resolve(): str(path) for path in by_id.iterdir()} if by_id.is_dir() else {}
    found = []
    for port in sorted(comports()):
        board = by_usb(port.vid, port.pid)
        found.append(
            Plugged(
                port.device, stable.get(Path(port.device).resolve()), board.name if board else None, port.description, holders(port.device)
            )
        )
    return found
