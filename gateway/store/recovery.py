"""From the tables back to the broker's state at its start.

In: an open store. Out: `Recovered`. What a power cut left half-way is cleaned up here: messages that no queue refers to, and rows of
sessions that are gone. The time axis goes on from the newest time that the store knows; the time that the gateway was off counts when the
clock was known both before and after.
"""

import sqlite3

from gateway.broker.recovered import Recovered

_PART = 512


def recover(database: sqlite3.Connection, utc: int | None) -> Recovered:
    """Read everything. utc: µs since 1970, None while the clock is not known."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        boot = _count_start(database)
        _tidy(database)
    rows = database.execute
    return Recovered(
        boot=boot,
        now=_axis(database, utc),
        next_session=rows("SELECT coalesce(max(id), 0) + 1 FROM session").fetchone()[0],
        next_message=rows("SELECT coalesce(max(id), 0) + 1 FROM message").fetchone()[0],
        next_spool=rows("SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'spool'").fetchone()[0],
        spool=rows(
            "SELECT max(id), sum(length(payload) + length(CAST(topic AS BLOB)) + 66) FROM spool GROUP BY id / ? ORDER BY 1", (_PART,)
        ).fetchall(),
        sessions=rows("SELECT * FROM session").fetchall(),
        subscriptions=rows("SELECT * FROM subscription").fetchall(),
        flows=rows("SELECT * FROM flow").fetchall(),
        messages=rows("SELECT * FROM message").fetchall(),
        queue=rows("SELECT * FROM queue ORDER BY session, first").fetchall(),
        retained=rows("SELECT * FROM retained").fetchall(),
        wills=rows("SELECT * FROM will").fetchall(),
    )


def _count_start(database: sqlite3.Connection) -> int:
    found = database.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
    boot = int(found[0]) + 1 if found else 1
    database.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (str(boot),))
    return boot


def _tidy(database: sqlite3.Connection) -> None:
    for table in ("subscription", "flow", "queue"):
        database.execute(f"DELETE FROM {table} WHERE session NOT IN (SELECT id FROM session)")  # noqa: S608
    database.execute("DELETE FROM message WHERE id NOT IN (SELECT message FROM queue)")
    database.execute("DELETE FROM queue WHERE message NOT IN (SELECT id FROM message)")


def _axis(database: sqlite3.Connection, utc: int | None) -> float:
    """Where the time axis goes on, in seconds. `meta.axis` is `milliseconds` or `milliseconds at µs UTC`."""
    found = database.execute("SELECT value FROM meta WHERE key = 'axis'").fetchone()
    if found is None:
        return 0.0
    axis, _, known = found[0].partition(" at ")
    away = max(0, utc - int(known)) / 1_000_000 if known and utc is not None else 0.0
    return int(axis) / 1000 + away


def save_axis(database: sqlite3.Connection, axis: int, utc: int | None) -> None:
    """Note where the time axis is, in ms, and what time it is there in µs UTC."""
    value = f"{axis}" if utc is None else f"{axis} at {utc}"
    database.execute("INSERT OR REPLACE INTO meta VALUES ('axis', ?)", (value,))
