"""The jobs on one device. In: registry, board, port, HEX file. Out: a board that was read back, and a registry row that says so."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import OncewayError
from provisioning import avrdude, ports
from provisioning.boards import Board
from provisioning.identity import Identity
from provisioning.image import Image, read_identity
from provisioning.registry import Device, Registry


@dataclass(frozen=True, slots=True)
class Target:
    """Where a job writes: a kind of board, its serial port, the firmware's HEX file."""

    board: Board
    port: str
    firmware: Path


def provision(registry: Registry, name: str, target: Target, progress: avrdude.Progress) -> Device:
    """Make an identity, write it and the firmware, verify, enter the device.

    An interrupted attempt (status `flashing`) is taken up again with the identity it had. Raises OncewayError if the name is taken.
    """
    known = registry.find(name)
    if known is not None and known.status != "flashing":
        raise _taken(registry, known)
    return _write(registry, known.identity if known else Identity.create(name), target, progress)


def flash(registry: Registry, name: str, target: Target, progress: avrdude.Progress) -> Device:
    """Write a firmware to a device of the registry; it keeps its identity."""
    return _write(registry, _welcome(registry, name).identity, target, progress)


def replace(registry: Registry, name: str, target: Target, progress: avrdude.Progress) -> Device:
    """Let a new board take over a name: it gets a key of its own, and its empty EEPROM makes the gateway draw a new incarnation."""
    registry.get(name)
    return _write(registry, Identity.create(name), target, progress)


def rename(registry: Registry, name: str, new_name: str, target: Target, progress: avrdude.Progress) -> Device:
    """Write a device again under another name. What it published stays under the old one. Raises OncewayError if the new name is taken."""
    taken = registry.find(new_name)
    if taken is not None:
        raise _taken(registry, taken)
    renamed = _write(registry, Identity(new_name, _welcome(registry, name).key), target, progress)
    registry.remove(name)
    return renamed


def read(board: Board, port: str, progress: avrdude.Progress) -> Identity | None:
    """The identity that a board carries, read from its flash, or None if it carries none."""
    ports.check(port)
    with tempfile.TemporaryDirectory(prefix="onceway-") as folder:
        image = Path(folder) / "flash.hex"
        image.touch(mode=0o600)
        avrdude.read(board, port, image, progress)
        return read_identity(image, board)


def check(target: Target) -> Image:
    """All that can be known before the board is touched. Raises OncewayError: no such file, not for this chip, port missing or busy."""
    image = Image(target.firmware, target.board)
    ports.check(target.port)
    return image


def _welcome(registry: Registry, name: str) -> Device:
    device = registry.get(name)
    if device.status == "revoked":
        hint = f"`onceway device replace {name}` gives the name to a board again, with a new key"
        raise OncewayError(f"the device {name!r} was revoked", str(registry.path), hint)
    return device


def _taken(registry: Registry, known: Device) -> OncewayError:
    return OncewayError(
        f"the name {known.name!r} is taken by a device that was provisioned on {known.created}",
        str(registry.path),
        f"Choose another name; `onceway device flash {known.name}` writes to that device, `replace` gives its name to a new board",
    )


def _write(registry: Registry, identity: Identity, target: Target, progress: avrdude.Progress) -> Device:
    image = check(target)
    before = registry.find(identity.name)
    registry.begin(identity, target.board.name, target.port)
    touched = False

    def watch(stage: str, share: float) -> None:
        nonlocal touched
        touched = touched or stage == "write"
        progress(stage, share)

    try:
        with tempfile.TemporaryDirectory(prefix="onceway-") as folder:
            patched = Path(folder) / "firmware.hex"
            image.write(patched, identity)
            avrdude.write(target.board, target.port, patched, watch)
    except OncewayError:
        if not touched:  # the board is as it was, and so shall be what we say of it
            registry.remove(identity.name) if before is None else registry.restore(before)
        raise
    registry.finish(identity.name, image.sha256)
    return registry.get(identity.name)
