"""`onceway device update`: new firmware for boards in service, one at a time, while the gateway
keeps running.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.errors import OncewayError, UsageError
from provisioning import boards
from provisioning.contact import hear
from provisioning.device import Target
from provisioning.firmware import hex_for
from provisioning.identity import Identity
from provisioning.image import Image
from provisioning.lending import borrowed, ports_in_use
from provisioning.options import DryRun, Hex, Json, RegistryFile, existing_registry
from provisioning.progress import shown
from provisioning.registry import Device, Registry
from provisioning.update import RolledBack, is_current, update

app = typer.Typer()

_UPDATABLE = ("ready", "written", "flashing")
_PUT_BACK = "put back"


class _NotConnected(OncewayError):
    """Error: the device's port does not exist."""


@app.command("update")
def update_devices(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of the devices to update.", show_default=False)
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Update all devices of the registry.")
    ] = False,
    hex_file: Hex = None,
    registry: RegistryFile = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Write new firmware to devices in service, one at a time. A running gateway hands over their
    ports meanwhile. Each device must greet with the new firmware. If it does not, it gets its old
    firmware back, and the remaining devices are left as they are. Unsent readings stay. Devices
    that have the firmware are skipped, so the same command continues an interrupted update.

    Example: onceway device update --all
    """
    opened = existing_registry(registry)
    if every == bool(names):
        raise UsageError("name the devices, or give --all", hint="onceway device update --help")
    wanted = [opened.get(name) for name in names or []] or [
        known for known in opened.devices() if known.status in _UPDATABLE
    ]
    where = ports_in_use(opened.path.parent)
    done: list[dict[str, Any]] = []
    for known in wanted:
        row: dict[str, Any] = {"name": known.name, "port": None}
        done.append(row)
        try:
            target, image = _target(opened, known, where, hex_file)
            row["port"] = target.port
            row["outcome"] = _one(opened, known, target, image, as_json, dry_run)
        except OncewayError as error:
            row |= {"outcome": _failure(error), "error": str(error)}
        if not as_json:
            print(f"{known.name}: {row.get('error') or row['outcome']}", flush=True)
        if row["outcome"] == _PUT_BACK:
            break  # the next board would fail in the same way
    if as_json:
        print(json.dumps(done, indent=2))
    elif not wanted:
        print(f"{opened.path}: this registry has no board that was written here")
    failed = sum("error" in row for row in done)
    if failed:
        untouched = len(wanted) - len(done)
        raise OncewayError(
            f"{failed} of {len(wanted)} devices could not be updated"
            + (f"; not tried: {untouched}" if untouched else ""),
            str(opened.path),
            "Fix the cause and run the command again: boards with this firmware are skipped",
        )


def _target(
    registry: Registry, known: Device, where: dict[str, str], hex_file: Path | None
) -> tuple[Target, Image]:
    if known.status not in _UPDATABLE:
        raise OncewayError(
            f"{known.name!r} is {known.status}: its board was not written by this gateway",
            str(registry.path),
        )
    kind = boards.board(known.board or "")
    port = where.get(known.name) or known.port
    if port is None or not os.path.exists(port):
        raise _NotConnected(f"{known.name!r} is not plugged in", port)
    firmware = hex_file or hex_for(kind)
    return Target(kind, port, firmware), Image(firmware, kind)


def _one(
    registry: Registry, known: Device, target: Target, image: Image, quiet: bool, dry_run: bool
) -> str:
    """Update one device and return the outcome, in a word or two."""
    if is_current(known, image):
        return "has this firmware"
    if dry_run:
        return "would be updated"
    with borrowed(registry.path.parent, target.port), shown(quiet) as progress:

        def greet(identity: Identity) -> None:
            progress("greet", 0.0)
            hear(target.port, identity, target.board)
            progress("greet", 1.0)

        update(registry, known.name, target, progress, greet)
    return "updated"


def _failure(error: OncewayError) -> str:
    match error:
        case _NotConnected():
            return "away"
        case RolledBack():
            return _PUT_BACK
    return "failed"
