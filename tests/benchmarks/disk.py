"""Libraries that stand between the gateway and the disk, built for a measurement: one delays each fsync, one notes when each was.

In: a folder to build in. Out: what `brokers.onceway` takes as `preload` and environment. The sources are the tests' own.
"""

import struct
import subprocess
from pathlib import Path

_SOURCES = Path(__file__).resolve().parents[1] / "store"
_NOTE = struct.Struct("<ddcc6xQQ")


def build(name: str, folder: Path) -> Path:
    """A library of `tests/store/NAME.c`."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{name}.so"
    command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCES / f"{name}.c"), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return library


def syncs(record: Path) -> list[tuple[float, float]]:
    """When each sync of a record began and ended, on the monotonic clock."""
    data = record.read_bytes()
    found, at = [], 0
    while at + _NOTE.size <= len(data):
        begin, end, operation, _, _, length = _NOTE.unpack_from(data, at)
        at += _NOTE.size + (length if operation == b"w" else 0)
        if operation == b"s":
            found.append((begin, end))
    return found
