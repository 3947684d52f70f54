"""The sensor firmware bundled with this installation, by which boards with other firmware are
found.

In: the board catalogue and HEX files beside this package (`provisioning/`), read as data: nothing
of `provisioning` is imported here. Out: title and SHA-256 of the HEX file for each kind of board.
The device registry has the same hash of the firmware that a board got.
"""

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of board. sha256: hash of its HEX file; None if there is no file, as in a source tree
    that was not built.
    """

    title: str
    sha256: str | None


@cache
def kinds(root: Path = ROOT) -> dict[str, Kind]:
    """Return all kinds of boards by their name in the registry; empty without a board catalogue."""
    try:
        catalogue = tomllib.loads((root / "provisioning" / "boards.toml").read_text())
    except OSError:
        return {}
    return {
        name: Kind(
            str(board["title"]),
            _sha256(root, name, str(board["firmware"]), str(board.get("example", "sensor"))),
        )
        for name, board in catalogue.items()
    }


def _sha256(root: Path, board: str, firmware: str, example: str) -> str | None:
    """Return the hash of a board's HEX file: the built file, or else the packed one. Return None if
    neither exists. The file names are those of `provisioning/boards.py`.
    """
    built = root / "build" / "firmware" / firmware / f"{example}.hex"
    packed = root / "provisioning" / "hex" / f"{firmware if example == 'sensor' else board}.hex"
    for path in (built, packed):
        try:
            return hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            continue
    return None
