"""Use of resources by a service, seen from outside: CPU, memory, bytes written to disk, open files
and threads, from /proc (man 5 proc). In: a process id. Out: an event `usage` in the history.
"""

import os
from contextlib import suppress
from pathlib import Path

from hil.observe.history import History

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
UTIME, STIME, THREADS, RSS = 11, 12, 17, 21  # fields of /proc/PID/stat after the name


def note_usage(history: History, service: str, pid: int) -> None:
    """Record CPU, memory, threads and files of a process, unless it has just ended."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        cpu = (int(fields[UTIME]) + int(fields[STIME])) / TICKS
        memory = int(fields[RSS]) * PAGE
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        history.add(
            service,
            "usage",
            pid=pid,
            cpu=cpu,
            memory=memory,
            written=int(io["write_bytes"]),
            descriptors=descriptors,
            threads=int(fields[THREADS]),
        )
