"""Observer of a program under test, from outside: unexpected errors in its log, and its use of CPU,
memory, disk, files and threads (/proc, man 5 proc); also the size of the store's log. In: a log, a
process id, the path of the store. Out: an event `erred` in the history for each traceback, and an
event `usage`.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from hil.observe.history import History

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
UTIME, STIME, THREADS, RSS = 11, 12, 17, 21  # fields of /proc/PID/stat after the name
_TRACEBACK = re.compile(r"^( *)Traceback \(most recent call last\):\n(?:\1 .*\n)*\1(\S.*)$", re.M)


def note_errors(history: History, program: str, log: Path) -> None:
    """Record each Python exception in a program's log: the program or its event loop caught it, and
    continued, perhaps without a part of its work. Without a log file, record nothing.
    """
    if log.exists():
        lines = log.read_text(errors="replace")
        plain = lines.replace('"Traceback (', "\nTraceback (").replace("\\n", "\n")  # in JSON logs
        for found in _TRACEBACK.finditer(plain):
            history.add(program, "erred", error=found[2].removesuffix('"}'))


def note_usage(history: History, service: str, pid: int, store: Path, stale: int = 0) -> None:
    """Record CPU, memory, threads and files of a process, unless it has just ended. store: the
    gateway's database. stale: `Machine["stale"]`.
    """
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        cpu = (int(fields[UTIME]) + int(fields[STIME])) / TICKS
        memory = int(fields[RSS]) * PAGE
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        log = store.with_name(f"{store.name}-wal")
        history.add(
            service,
            "usage",
            pid=pid,
            cpu=cpu,
            memory=memory,
            written=int(io["write_bytes"]),
            descriptors=descriptors,
            threads=int(fields[THREADS]),
            stale=stale,
            log=log.stat().st_size if log.exists() else 0,
        )
