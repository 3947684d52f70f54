"""`onceway device …`: the command line of provisioning."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gateway.errors import OncewayError
from provisioning import avrdude, batch, boards, device
from provisioning.contact import await_greeting
from provisioning.device import Target
from provisioning.progress import shown
from provisioning.registry import Device, Registry, default_path

app = typer.Typer(help="Flash and provision devices, and keep their registry.", no_args_is_help=True)

DEFAULT_HEX = Path("build/firmware/uno/sensor.hex")

Name = Annotated[str, typer.Argument(help="The device's name; also its MQTT client identifier.")]
Port = Annotated[str, typer.Option("--port", "-p", help="Serial port of the board, e.g. /dev/ttyACM0.")]
Hex = Annotated[Path, typer.Option("--hex", help="Firmware to write.")]
Board = Annotated[str, typer.Option("--board", help="Kind of board, see `onceway board list`.")]
KnownBoard = Annotated[str | None, typer.Option("--board", help="Kind of board.", show_default="as registered")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check firmware, port and name, and change nothing.")]
RegistryFile = Annotated[
    Path | None, typer.Option("--registry", envvar="ONCEWAY_REGISTRY", help="Registry file.", show_default="/var/lib/onceway or your own")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command()
def provision(
    name: Name,
    port: Port,
    board: Board = "uno",
    hex_file: Hex = DEFAULT_HEX,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Give a bare board an identity and a firmware, and enter it in the registry.

    Example: onceway device provision greenhouse-1 --port /dev/ttyACM0
    """
    opened, target = open_registry(registry), Target(boards.board(board), port, hex_file)
    _do("provisioned", name, target, dry_run, as_json, lambda progress: device.provision(opened, name, target, progress))


@app.command()
def add(
    name: Name,
    port: Port,
    board: Board = "uno",
    hex_file: Hex = DEFAULT_HEX,
    registry: RegistryFile = None,
    as_json: Json = False,
) -> None:
    """From a bare board to its first greeting: provision it, then wait until it speaks over its port as it will to the gateway.

    Example: onceway device add greenhouse-1 --port /dev/ttyACM0
    """
    opened, target = open_registry(registry), Target(boards.board(board), port, hex_file)
    with shown(as_json) as progress:
        device.provision(opened, name, target, progress)
    met = await_greeting(port, name)
    if as_json:
        print(json.dumps(opened.get(name).public() | {"incarnation": met.incarnation, "next_sequence": met.next_sequence}, indent=2))
    else:
        print(f"{name} provisioned on {port}; it greets with incarnation {met.incarnation:08x}, next sequence {met.next_sequence}")


@app.command()
def flash(
    name: Name,
    port: Port,
    board: KnownBoard = None,
    hex_file: Hex = DEFAULT_HEX,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Write a new firmware to a device of the registry; its identity stays.

    Example: onceway device flash greenhouse-1 --port /dev/ttyACM0 --hex build/firmware/uno/sensor.hex
    """
    opened = open_registry(registry)
    target = _known(opened, name, board, port, hex_file)
    _do("flashed", name, target, dry_run, as_json, lambda progress: device.flash(opened, name, target, progress))


@app.command()
def replace(
    name: Name,
    port: Port,
    board: KnownBoard = None,
    hex_file: Hex = DEFAULT_HEX,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Let a new board take over a name; it gets a new key and a new incarnation.

    Example: onceway device replace greenhouse-1 --port /dev/ttyACM0
    """
    opened = open_registry(registry)
    target = _known(opened, name, board, port, hex_file)
    _do("given to a new board", name, target, dry_run, as_json, lambda progress: device.replace(opened, name, target, progress))


@app.command()
def rename(
    name: Name,
    new_name: Annotated[str, typer.Argument(help="The name it shall have.")],
    port: Port,
    board: KnownBoard = None,
    hex_file: Hex = DEFAULT_HEX,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Give a device another name: it is written again, since the name is in its flash.

    Example: onceway device rename greenhouse-1 roof-1 --port /dev/ttyACM0
    """
    opened = open_registry(registry)
    target = _known(opened, name, board, port, hex_file)
    _do(
        f"(was {name}) renamed",
        new_name,
        target,
        dry_run,
        as_json,
        lambda progress: device.rename(opened, name, new_name, target, progress),
    )


@app.command("list")
def list_devices(registry: RegistryFile = None, as_json: Json = False) -> None:
    """Show the devices of the registry.

    Example: onceway device list --json
    """
    devices = open_registry(registry).devices()
    if as_json:
        print(json.dumps([entry.public() for entry in devices], indent=2))
        return
    table = Table("name", "board", "status", "port", "firmware", "flashed")
    for entry in devices:
        table.add_row(entry.name, entry.board, entry.status, entry.port or "", (entry.firmware or "")[:12], entry.flashed or "")
    Console().print(table if devices else "no devices yet; `onceway device provision NAME --port PORT` makes one")


@app.command()
def show(name: Name, registry: RegistryFile = None, as_json: Json = False) -> None:
    """Show one device.

    Example: onceway device show greenhouse-1
    """
    entry = open_registry(registry).get(name).public()
    print(json.dumps(entry, indent=2) if as_json else "\n".join(f"{column:9} {value or '-'}" for column, value in entry.items()))


@app.command("read")
def read_identity(port: Port, board: Board = "uno", as_json: Json = False) -> None:
    """Say which device a board is, as its flash has it.

    Example: onceway device read --port /dev/ttyACM0
    """
    with shown(as_json) as progress:
        identity = device.read(boards.board(board), port, progress)
    if as_json:
        print(json.dumps({"port": port, "name": identity.name if identity else None}))
    else:
        print(f"{port}: {identity.name}" if identity else f"{port}: this board carries no identity")


@app.command()
def revoke(name: Name, registry: RegistryFile = None) -> None:
    """Mark a device as no longer welcome.

    Example: onceway device revoke greenhouse-1
    """
    open_registry(registry).revoke(name)
    print(f"{name} revoked")


@app.command("import")
def import_list(
    file: Annotated[Path, typer.Argument(help="CSV file with the columns name, port and, as you like, board.")],
    hex_file: Hex = DEFAULT_HEX,
    registry: RegistryFile = None,
    dry_run: DryRun = False,
) -> None:
    """Provision the boards of a list. Those that are ready are left alone, so run it again after an error.

    Example: onceway device import boards.csv
    """
    opened, entries = open_registry(registry), batch.read(file)
    for number, entry in enumerate(entries, 1):
        known = opened.find(entry.name)
        if known is not None and known.status != "flashing":
            print(f"[{number}/{len(entries)}] {entry.name} is {known.status}")
            continue
        print(f"[{number}/{len(entries)}] {entry.name} on {entry.port}")
        target = Target(entry.board, entry.port, hex_file)
        try:
            if dry_run:
                device.check(target)
                continue
            with shown(False) as progress:
                device.provision(opened, entry.name, target, progress)
        except OncewayError as error:
            raise OncewayError(f"{error} (line {entry.line})", str(file), "Mend that and run the command again; it goes on here") from error


def open_registry(path: Path | None) -> Registry:
    return Registry(path or default_path())


def _known(registry: Registry, name: str, board: str | None, port: str, firmware: Path) -> Target:
    return Target(boards.board(board or registry.get(name).board), port, firmware)


def _do(verb: str, name: str, target: Target, dry_run: bool, as_json: bool, job: Callable[[avrdude.Progress], Device]) -> None:
    if dry_run:
        size = device.check(target).size
        print(f"{name} would be {verb} on {target.port} with {target.firmware} ({size} bytes)")
        return
    with shown(as_json) as progress:
        done = job(progress)
    if as_json:
        print(json.dumps(done.public(), indent=2))
    else:
        print(f"{done.name} {verb} on {done.port}, read back and entered in the registry")
