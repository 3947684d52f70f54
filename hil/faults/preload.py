"""A faulty machine under one program: full disk, cut writes, slow fsync, a clock that jumps, and a
power cut just before a certain file appears. The program is unmodified. In: the present faults.
Out: an environment for the program, and how often it met each fault. `preload.c` is loaded into the
program and shares a small file with this object.
"""

import mmap
import struct
import subprocess
from pathlib import Path

from gateway.errors import OncewayError

SOURCE = Path(__file__).with_name("preload.c")
FIELDS = (
    "full",
    "cut",
    "slow_ms",
    "clock_ns",
    "unknown",
    "steps",
    "hold",
    "window",
    "pass",
    "reached",
    "step",
    "taken",
    "stood",
    "refused",
    "halved",
    "slowed",
    "shifted",
    "held",
    "asked",
    "stale",
)
WORD = struct.Struct("=q")
PATTERN_SIZE = 256
FOUND_SIZE = 4096
NOWHERE = 0


class Machine:
    """A faulty machine, as one program sees it. folder: the folder in which the disk is faulty.
    work: folder for this object's files. Raises OncewayError if the C part cannot be built.
    """

    def __init__(self, work: Path, folder: Path) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._library = work / "machine.so"
        self._shared = work / "machine"
        self._folder = folder
        _build(self._library)
        self._shared.write_bytes(bytes(WORD.size * len(FIELDS) + PATTERN_SIZE + FOUND_SIZE))
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
        """Return the value of a switch or a counter. Counters: refused, halved, slowed, shifted,
        held: how often the program met a fault. asked: number of its calls of adjtimex. stale: how
        often it went on writing a log that it had not synced for 3 s.
        """
        return int(WORD.unpack_from(self._map, WORD.size * FIELDS.index(name))[0])

    def __setitem__(self, name: str, value: int) -> None:
        """Set a switch (`full`, `cut`, `hold`, `unknown`) to 0 or 1, or a number (`slow_ms`,
        `clock_ns`, `steps`). See preload.c.
        """
        WORD.pack_into(self._map, WORD.size * FIELDS.index(name), value)

    def arm(self, window: int, let_pass: int = 0) -> None:
        """Stop the process, or one thread of it, at a window (preload.c). While the process is
        stopped, `self["reached"]` is that window. let_pass: number of times that the process passes
        the window first.
        """
        self["window"] = self["reached"] = NOWHERE
        self["pass"] = let_pass
        self["window"] = window

    def disarm(self) -> None:
        """End the effect of `arm`: release a process or thread that waits at the window."""
        self["window"] = self["reached"] = NOWHERE

    @property
    def found(self) -> str:
        """Return the path of the file that the process was about to make at its last stop."""
        start = WORD.size * len(FIELDS) + PATTERN_SIZE
        return self._map[start : start + FOUND_SIZE].partition(b"\0")[0].decode()

    def count_steps(self, last: int) -> None:
        """Stop the process after `last` more steps. `self["stood"]` is the number of steps at the
        stop, and `self["step"]` the kind of the last step.
        """
        self["steps"] = 0
        self["taken"] = self["stood"] = 0
        self["steps"] = last

    def hold_before(self, pattern: str) -> None:
        """From now until `self["hold"] = 0`, stop the process (SIGSTOP) before it makes a file
        whose path matches this shell pattern.
        """
        data = pattern.encode() + b"\0"
        if len(data) > PATTERN_SIZE:
            raise ValueError(f"the pattern is longer than {PATTERN_SIZE - 1} bytes: {pattern}")
        start = WORD.size * len(FIELDS)
        self["hold"] = 0
        self._map[start : start + len(data)] = data
        self["hold"] = 1


def _build(library: Path) -> None:
    argv = [
        "cc",
        "-shared",
        "-fPIC",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        str(library),
        str(SOURCE),
        "-ldl",
    ]
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        raise OncewayError(
            f"cannot build the library that makes a disk or a clock misbehave ({reason})",
            str(SOURCE),
            "Install a C compiler",
        ) from error
