"""`onceway device …`: the command line of provisioning."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from provisioning import avrdude, boards, device
from provisioning.registry import Device, Registry, default_path

app = typer.Typer(help="Flash and provision devices, and keep their registry.", no_args_is_help=True)

_STAGES = {"connect": "waiting for the boot loader", "write": "writing", "verify": "reading back"}

Name = Annotated[str, typer.Argument(help="The device's name; also its MQTT client identifier.")]
Port = Annotated[str, typer.Option("--port", "-p", help="Serial port of the board, e.g. /dev/ttyACM0.")]
Hex = Annotated[Path, typer.Option("--hex", help="Firmware to write.")]
RegistryFile = Annotated[
    Path | None, typer.Option("--registry", envvar="ONCEWAY_REGISTRY", help="Registry file.", show_default="/var/lib/onceway or your own")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DEFAULT_HEX = Path("build/firmware/uno/sensor.hex")


@app.command()
def provision(
    name: Name,
    port: Port,
    board: Annotated[str, typer.Option(help="Kind of board, see provisioning/boards.toml.")] = "uno",
    hex_file: Hex = DEFAULT_HEX,
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Give a bare board an identity and a firmware, and enter it in the registry.

    Example: onceway device provision greenhouse-1 --port /dev/ttyACM0
    """
    with _progress(as_json) as progress:
        done = device.provision(_open(registry), name, boards.board(board), port, hex_file, progress)
    _report("provisioned", done, as_json)


@app.command()
def flash(
    name: Name,
    port: Port,
    board: Annotated[str | None, typer.Option(help="Kind of board.", show_default="as registered")] = None,
    hex_file: Hex = DEFAULT_HEX,
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """Write a new firmware to a device of the registry; its identity stays.

    Example: onceway device flash greenhouse-1 --port /dev/ttyACM0 --hex build/firmware/uno/sensor.hex
    """
    opened = _open(registry)
    kind = boards.board(board or opened.get(name).board)
    with _progress(as_json) as progress:
        done = device.flash(opened, name, kind, port, hex_file, progress)
    _report("flashed", done, as_json)


@app.command("list")
def list_devices(registry: RegistryFile = None, as_json: Json = False) -> None:
    """Show the devices of the registry.

    Example: onceway device list --json
    """
    devices = _open(registry).devices()
    if as_json:
        print(json.dumps([entry.public() for entry in devices], indent=2))
        return
    table = Table("name", "board", "status", "port", "firmware", "flashed")
    for entry in devices:
        table.add_row(entry.name, entry.board, entry.status, entry.port or "", (entry.firmware or "")[:12], entry.flashed or "")
    Console().print(table if devices else "no devices yet; `onceway device provision NAME --port PORT` makes one")


def _open(path: Path | None) -> Registry:
    return Registry(path or default_path())


def _report(verb: str, done: Device, as_json: bool) -> None:
    if as_json:
        print(json.dumps(done.public(), indent=2))
    else:
        print(f"{done.name} {verb} on {done.port}, read back and entered in the registry")


@contextmanager
def _progress(quiet: bool) -> Iterator[avrdude.Progress]:
    """A bar per stage on a terminal, a line per stage elsewhere, nothing for machines."""
    console = Console(stderr=True)
    if quiet:
        yield lambda stage, share: None
    elif not console.is_terminal:
        said: set[str] = set()

        def say(stage: str, share: float) -> None:
            if stage not in said:
                said.add(stage)
                console.print(_STAGES[stage])

        yield say
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as bars:
            tasks: dict[str, TaskID] = {}

            def draw(stage: str, share: float) -> None:
                if stage not in tasks:
                    for earlier in tasks.values():
                        bars.update(earlier, completed=1.0)
                    tasks[stage] = bars.add_task(_STAGES[stage], total=1.0)
                bars.update(tasks[stage], completed=share)

            yield draw
