"""A machine that misbehaves under one program: disk full, slow fsync, a clock of the day that jumps. The program is the shipped one.

In: what shall be wrong, from now on. Out: an environment to start the program in, and counts of how often it met what was wrong.
`machine.c` is loaded into the program and shares a small file with this object.
"""

import mmap
import struct
import subprocess
from pathlib import Path

from gateway.errors import OncewayError

SOURCE = Path(__file__).with_name("machine.c")
FIELDS = ("full", "slow_ms", "clock_ns", "refused", "slowed", "shifted")
WORD = struct.Struct("=q")


class Machine:
    """folder: below which the disk misbehaves. Files are made in `work`. Raises OncewayError if the C part cannot be built."""

    def __init__(self, work: Path, folder: Path) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._library = work / "machine.so"
        self._shared = work / "machine"
        self._folder = folder
        _build(self._library)
        self._shared.write_bytes(bytes(WORD.size * len(FIELDS)))
        with self._shared.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    @property
    def env(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "ONCEWAY_RIG_MACHINE": str(self._shared),
            "ONCEWAY_RIG_FOLDER": str(self._folder.resolve()),
        }

    def __getitem__(self, name: str) -> int:
        """full: 0 or 1; slow_ms; clock_ns; refused, slowed, shifted: how often so far."""
        return int(WORD.unpack_from(self._map, WORD.size * FIELDS.index(name))[0])

    def __setitem__(self, name: str, value: int) -> None:
        WORD.pack_into(self._map, WORD.size * FIELDS.index(name), value)


def _build(library: Path) -> None:
    argv = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        raise OncewayError(f"cannot build the machine that misbehaves ({reason})", str(SOURCE), "Install a C compiler") from error
