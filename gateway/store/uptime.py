"""Continuation of the broker's time axis after the gateway was off.

In: two notes from the last run, and the current clocks. `meta.axis` is written now and then,
`meta.uptime` once for each start. The clocks are the kernel's uptime, which outlives the gateway's
process, and the time of day if known. Out: the present position of the axis. The uptime is exact,
but useless after a reboot; `meta.axis` is as old as the last commit that contained it.
"""

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Uptime:
    """The kernel's clock. machine: identifies the boot of the machine. seconds: since that boot."""

    machine: str
    seconds: float


def uptime() -> Uptime | None:
    """Return the uptime, or None if the kernel does not identify its boots."""
    try:
        return Uptime(_BOOT_ID.read_text(encoding="ascii").strip(), time.monotonic())
    except OSError:
        return None


def axis(database: sqlite3.Connection, utc: int | None, uptime: Uptime | None) -> float:
    """Return the present position of the time axis in seconds. `meta.axis` is `milliseconds` or
    `milliseconds at µs UTC`.
    """
    found = database.execute("SELECT value FROM meta WHERE key = 'axis'").fetchone()
    stood, _, known = found[0].partition(" at ") if found else ("0", "", "")
    exact = _axis_by_uptime(database, uptime)
    if exact is not None:
        return max(exact, int(stood) / 1000)
    away = max(0, utc - int(known)) / 1_000_000 if known and utc is not None else 0.0
    return int(stood) / 1000 + away


def save_axis(database: sqlite3.Connection, axis: int, utc: int | None) -> None:
    """Save the position of the time axis, in ms, and the time in µs UTC."""
    value = f"{axis}" if utc is None else f"{axis} at {utc}"
    database.execute("INSERT OR REPLACE INTO meta VALUES ('axis', ?)", (value,))


def save_uptime(database: sqlite3.Connection, axis: float, now: Uptime) -> None:
    """Save the position of the time axis, in seconds, at this uptime."""
    value = f"{int(axis * 1000)} at {int(now.seconds * 1000)} of {now.machine}"
    database.execute("INSERT OR REPLACE INTO meta VALUES ('uptime', ?)", (value,))


def _axis_by_uptime(database: sqlite3.Connection, now: Uptime | None) -> float | None:
    """Return the time axis in seconds; None after a reboot, or at the first start. `meta.uptime` is
    `milliseconds at milliseconds of uptime of machine`.
    """
    found = database.execute("SELECT value FROM meta WHERE key = 'uptime'").fetchone()
    if now is None or found is None:
        return None
    stood, _, noted = found[0].partition(" at ")
    up, _, machine = noted.partition(" of ")
    if machine != now.machine or now.seconds * 1000 < int(up):
        return None
    return (int(stood) - int(up)) / 1000 + now.seconds
