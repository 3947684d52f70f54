"""Observer of a program under test, from outside: unexpected errors in its log, and its use of CPU,
memory, disk, files and threads (/proc, man 5 proc); also the size of the store's log. In: a log, a
process id, the path of the store. Out: an event `erred` in the history for each traceback, and an
event `usage`.
"""

import json
import os
import re
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.commands.control_client import NotRunning, ask
from gateway.errors import OncewayError
from hil.observe.history import History

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
UTIME, STIME, THREADS, BEGUN, RSS = 11, 12, 17, 19, 21  # fields of /proc/PID/stat after the name
ASKED = ("status", "everything", "sessions", "radios", "site")
"""Requests to the control socket whose rows are recorded."""
ANSWERS_WITHIN = 30.0  # s, on a busy machine
SETTLES_S, LOOK_EVERY = 20.0, 0.2  # s
_SERIES = re.compile(r"^([a-z_]+(?:{.*})?) (\S+)$", re.M)
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


def settle(data: Path) -> None:
    """Wait, at most SETTLES_S, until a gateway has noticed that all its rows have landed."""
    until = time.monotonic() + SETTLES_S
    with suppress(NotRunning, OncewayError):
        while ask(data, do="status")[0]["spool"]["messages"] and time.monotonic() < until:
            time.sleep(LOOK_EVERY)


def note_figures(
    history: History, service: str, pid: int, data: Path, address: str, uplink: str
) -> None:
    """Record a running gateway's metrics, the rows of its control socket, and the text of `onceway
    uplink status --json`. Also record when its process began, and the sizes of its files.
    """
    with suppress(OSError, IndexError, ValueError, NotRunning, OncewayError):
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        slept = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        disk, shm = os.statvfs(data), data / "gateway.db-shm"
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=ANSWERS_WITHIN) as answer:
            metrics = _SERIES.findall(answer.read().decode())
        answers: dict[str, Any] = {do: ask(data, do=do) for do in ASKED}
        history.add(
            service,
            "figures",
            began=int(stat[BEGUN]) * (1_000_000_000 // TICKS) - slept,
            metrics={series: float(value) for series, value in metrics},
            uplink=json.loads(uplink),
            free=disk.f_bavail * disk.f_frsize,
            size=sum(file.stat().st_size for file in data.glob("gateway.db*") if file != shm),
            **answers,
        )
