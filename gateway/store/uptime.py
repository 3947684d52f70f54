"""Where the broker's time axis goes on after the gateway was off.

In: what was noted while it ran, `meta.axis` every now and then and `meta.uptime` once for each
start; the kernel's clock, which outlives the gateway's process, and the time of day if it is known.
Out: where the axis stands now. The uptime is exact, and after a reboot it says nothing; the other
note is as old as the last commit that carried it.
"""

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Uptime:
    """machine: which start of the machine this is, another one after each reboot. seconds: since
    then.
    """

    machine: str
    seconds: float


def uptime() -> Uptime | None:
    """None where the kernel does not tell one start of the machine from another."""
    try:
        return Uptime(_BOOT_ID.read_text(encoding="ascii").strip(), time.monotonic())
    except OSError:
        return None


def axis(database: sqlite3.Connection, utc: int | None, uptime: Uptime | None) -> float:
    """Where the time axis goes on, in seconds, if it goes on now. `meta.axis` is `milliseconds` or
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
    """Note where the time axis is, in ms, and what time it is there in µs UTC."""
    value = f"{axis}" if utc is None else f"{axis} at {utc}"
    database.execute("INSERT OR REPLACE INTO meta VALUES ('axis', ?)", (value,))


def save_uptime(database: sqlite3.Connection, axis: float, now: Uptime) -> None:
    """Note where the time axis is, in seconds, at this uptime."""
    value = f"{int(axis * 1000)} at {int(now.seconds * 1000)} of {now.machine}"
    database.execute("INSERT OR REPLACE INTO meta VALUES ('uptime', ?)", (value,))


def _axis_by_uptime(database: sqlite3.Connection, now: Uptime | None) -> float | None:
    """The time axis in seconds; None when the machine was started again, or for the first time.
    `meta.uptime` is `milliseconds at milliseconds of uptime of machine`.
    """
    found = database.execute("SELECT value FROM meta WHERE key = 'uptime'").fetchone()
    if now is None or found is None:
        return None
    stood, _, noted = found[0].partition(" at ")
    up, _, machine = noted.partition(" of ")
    if machine != now.machine or now.seconds * 1000 < int(up):
        return None
    return (int(stood) - int(up)) / 1000 + now.seconds
