"""How long this machine has been up: the clock that outlives the gateway's process, whether or not anybody knows the time of day.

In: the kernel's clock, and the row of the start before this one. Out: where the broker's time axis stands now. The row is written once for
each start of the gateway, since both clocks go on alike; after a reboot it says nothing.
"""

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Uptime:
    """machine: which start of the machine this is, another one after each reboot. seconds: since then."""

    machine: str
    seconds: float


def uptime() -> Uptime | None:
    """None where the kernel does not tell one start of the machine from another."""
    try:
        return Uptime(_BOOT_ID.read_text(encoding="ascii").strip(), time.monotonic())
    except OSError:
        return None


def axis_by_uptime(database: sqlite3.Connection, now: Uptime | None) -> float | None:
    """The time axis in seconds; None when the machine was started again, or for the first time. `meta.uptime` is `milliseconds at
    milliseconds of uptime of machine`."""
    found = database.execute("SELECT value FROM meta WHERE key = 'uptime'").fetchone()
    if now is None or found is None:
        return None
    stood, _, noted = found[0].partition(" at ")
    up, _, machine = noted.partition(" of ")
    if machine != now.machine or now.seconds * 1000 < int(up):
        return None
    return (int(stood) - int(up)) / 1000 + now.seconds


def save_uptime(database: sqlite3.Connection, axis: float, now: Uptime) -> None:
    """Note where the time axis is, in seconds, at this uptime."""
    value = f"{int(axis * 1000)} at {int(now.seconds * 1000)} of {now.machine}"
    database.execute("INSERT OR REPLACE INTO meta VALUES ('uptime', ?)", (value,))
