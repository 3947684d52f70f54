"""Continuation of the broker's time axis after the gateway was off.

In: two notes from the last run, and the current clocks. `meta.axis` is written with some commits,
`meta.uptime` once for each start. The clocks are the kernel's uptime, which outlives the gateway's
process, and the time of day if known. Out: the present position of the axis. The uptime is exact,
but useless after a reboot of the machine; `meta.axis` is as old as the last commit that wrote it.
"""

import logging
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from gateway.system.amounts import amount
from gateway.system.time_of_day import DAY, MOST_AWAY, doubt

log = logging.getLogger(__name__)

SEEN = "seen"
"""Key in `meta`: the newest time of day that was believed, in µs since 1970."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Uptime:
    """The kernel's clock. machine: identifies this start of the machine (the kernel's boot_id).
    seconds: time since this start.
    """

    machine: str
    seconds: float


def uptime() -> Uptime | None:
    """Return the machine's uptime, or None if the kernel has no boot_id."""
    try:
        return Uptime(_BOOT_ID.read_text(encoding="ascii").strip(), time.monotonic())
    except OSError:
        return None


def axis(database: sqlite3.Connection, utc: int | None, uptime: Uptime | None) -> float:
    """Return the present position of the time axis in seconds. utc: µs since 1970, or None.
    `meta.axis` has the form `AXIS` or `AXIS at UTC`: a position in ms, and µs since 1970. If the
    time since the last run is implausibly long (`MOST_AWAY`), it counts as zero.
    """
    found = database.execute("SELECT value FROM meta WHERE key = 'axis'").fetchone()
    stood, _, known = found[0].partition(" at ") if found else ("0", "", "")
    exact = _axis_by_uptime(database, uptime)
    if exact is not None:
        return max(exact, int(stood) / 1000)
    if not known or utc is None:
        return int(stood) / 1000
    away = max(0, utc - int(known))
    if away > MOST_AWAY:
        text = "by the clock, the gateway was off for %d days: not believed, and counted as 0 s"
        log.warning(text, away // DAY)
        return int(stood) / 1000
    _tell_away(database, int(stood), away / 1_000_000)
    return int(stood) / 1000 + away / 1_000_000


def _tell_away(database: sqlite3.Connection, stood: int, away: float) -> None:
    """Log how many sessions expired while the gateway was off. stood: time on the time axis at the
    stop, in ms. away: seconds since the stop.
    """
    (count,) = database.execute(
        "SELECT count(*) FROM session WHERE expiry < 4294967295"
        " AND coalesce(left, ?1) + expiry * 1000 BETWEEN ?1 AND ?2",
        (stood, stood + away * 1000),
    ).fetchone()
    if count:
        text = "by the clock, the gateway was off for %.1f h: meanwhile %s expired"
        log.warning(text, away / 3600, amount(count, "session"))


def last_seen(database: sqlite3.Connection) -> int | None:
    """Return the newest time of day that was believed, in µs since 1970; None if the store has
    none. A store of an older version has it in `meta.axis` or in the newest row of the spool.
    """
    found = dict(database.execute("SELECT key, value FROM meta WHERE key IN ('axis', 'seen')"))
    known = found.get("axis", "").partition(" at ")[2] or found.get(SEEN)
    if known is not None:
        return int(known)
    row = database.execute("SELECT received FROM spool ORDER BY id DESC LIMIT 1").fetchone()
    return row[0] if row and isinstance(row[0], int) and doubt(row[0], None) is None else None


def save_axis(database: sqlite3.Connection, axis: int, utc: int | None) -> None:
    """Save the position of the time axis. axis: ms. utc: the time of day in µs since 1970, or
    None.
    """
    value = f"{axis}" if utc is None else f"{axis} at {utc}"
    database.execute("INSERT OR REPLACE INTO meta VALUES ('axis', ?)", (value,))
    if utc is not None:
        database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (SEEN, f"{max(0, utc)}"))


def save_uptime(database: sqlite3.Connection, axis: float, now: Uptime) -> None:
    """Save a position of the time axis, in seconds, with the machine's boot and uptime at that
    moment.
    """
    value = f"{int(axis * 1000)} at {int(now.seconds * 1000)} of {now.machine}"
    database.execute("INSERT OR REPLACE INTO meta VALUES ('uptime', ?)", (value,))


def _axis_by_uptime(database: sqlite3.Connection, now: Uptime | None) -> float | None:
    """Return the position of the time axis in seconds; None after a reboot, or at the first start.
    `meta.uptime` has the form `AXIS at UPTIME of MACHINE`: both times in ms, and the kernel's
    boot_id.
    """
    found = database.execute("SELECT value FROM meta WHERE key = 'uptime'").fetchone()
    if now is None or found is None:
        return None
    stood, _, noted = found[0].partition(" at ")
    up, _, machine = noted.partition(" of ")
    if machine != now.machine or now.seconds * 1000 < int(up):
        return None
    return (int(stood) - int(up)) / 1000 + now.seconds
