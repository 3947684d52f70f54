"""The disk under the gateway: how long it takes by itself, and libraries between them, one that
delays each fsync and one that records its time.

In: a folder on that disk. Out: seconds; what `brokers.onceway` takes as `preload` and environment.
The sources are the tests' own.
"""

import os
import struct
import subprocess
import time
from pathlib import Path
from statistics import median

_SOURCES = Path(__file__).resolve().parents[1] / "store"
_NOTE = struct.Struct("<ddcc6xQQ")


def build(name: str, folder: Path) -> Path:
    """Build `tests/store/NAME.c` as a library, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{name}.so"
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O2",
        "-o",
        str(library),
        str(_SOURCES / f"{name}.c"),
        "-ldl",
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    return library


def syncs(record: Path) -> list[tuple[float, float]]:
    """Return begin and end of each sync of a record, on the monotonic clock."""
    data = record.read_bytes()
    found, at = [], 0
    while at + _NOTE.size <= len(data):
        begin, end, operation, _, _, length = _NOTE.unpack_from(data, at)
        at += _NOTE.size + (length if operation == b"w" else 0)
        if operation == b"s":
            found.append((begin, end))
    return found


def fsync_s(folder: Path, times: int = 200) -> float:
    """Return the median seconds of an fsync after 16 kB were written over, as at the end of a
    commit.
    """
    path = folder / "fsync"
    spent = []
    with path.open("wb") as file:
        file.write(bytes(16_384))
        file.flush()
        os.fsync(file.fileno())
        for _ in range(times):
            os.pwrite(file.fileno(), bytes(16_384), 0)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            spent.append(time.perf_counter() - began)
    path.unlink()
    return median(spent)
