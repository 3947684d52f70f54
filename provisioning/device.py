"""The jobs on one device: give a board an identity and a firmware, or a known device a new firmware.

In: registry, board, port, HEX file. Out: a board that was read back, and a registry row that says so.
"""

import tempfile
from pathlib import Path

from gateway.errors import OncewayError
from provisioning import avrdude, ports
from provisioning.boards import Board
from provisioning.identity import Identity
from provisioning.image import Image
from provisioning.registry import Device, Registry


def provision(registry: Registry, name: str, board: Board, port: str, firmware: Path, progress: avrdude.Progress) -> Device:
    """Make an identity, write it and the firmware, verify, enter the device.

    An interrupted attempt (status `flashing`) is taken up again with the identity it had. Raises OncewayError if the name is taken.
    """
    known = registry.find(name)
    if known is not None and known.status == "ready":
        raise OncewayError(
            f"the name {name!r} is taken by a device that was provisioned on {known.created}",
            str(registry.path),
            f"Choose another name, or `onceway device flash {name}` to write a new firmware to that device",
        )
    identity = known.identity if known is not None else Identity.create(name)
    return _write(registry, identity, board, port, firmware, progress)


def flash(registry: Registry, name: str, board: Board, port: str, firmware: Path, progress: avrdude.Progress) -> Device:
    """Write a firmware to a device of the registry; it keeps its identity."""
    return _write(registry, registry.get(name).identity, board, port, firmware, progress)


def _write(registry: Registry, identity: Identity, board: Board, port: str, firmware: Path, progress: avrdude.Progress) -> Device:
    image = Image(firmware, board)
    ports.check(port)
    registry.begin(identity, board.name, port)
    with tempfile.TemporaryDirectory(prefix="onceway-") as folder:
        patched = Path(folder) / "firmware.hex"
        image.write(patched, identity)
        avrdude.write(board, port, patched, progress)
    registry.finish(identity.name, image.sha256)
    return registry.get(identity.name)
