"""The disk under the gateway: the time of an fsync, and libraries that delay or record each fsync.

In: a folder on that disk. Out: seconds, and libraries for the argument `preload` of
`brokers.onceway`. Tests use the same sources of the libraries.
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
    """Compile `tests/store/NAME.c` to a library in `folder`. Return its path."""
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
    """Return begin and end of each sync in a record, as monotonic time in seconds."""
    data = record.read_bytes()
    found, at = [], 0
    while at + _NOTE.size <= len(data):
        begin, end, operation, _, _, length = _NOTE.unpack_from(data, at)
        at += _NOTE.size + (length if operation == b"w" else 0)
        if operation == b"s":
            found.append((begin, end))
    return found


def fsync_s(folder: Path, times: int = 200) -> float:
    """Return the median time of an fsync after 16 kB were overwritten, as at the end of a commit,
    in seconds.
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
