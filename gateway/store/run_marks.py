"""The mark of a run that did not end cleanly, and the repair at the next start if the write-ahead
log of that run is gone.

In: an open store at the gateway's start. Out: whether acknowledged commits may be lost. After a
kill or a power cut the write-ahead log holds the newest commits. If a file system check or a person
deletes the log, the database is intact, but out of date, and only this mark shows the loss.

`meta.running` is the number of the start whose run has not ended. A start of an older version
increases `meta.boot` without changing the mark. If `meta.running` and `meta.boot` differ, the mark
is ignored.
"""

import json
import sqlite3

from gateway.store.references import GONE

RUNNING = "running"
SKIPPED = 1_000_000
"""Number of spool ids that are skipped after the loss of a log, because other publications may have
landed under these ids. A log of 8 MB has room for fewer rows.
"""


def was_stopped(database: sqlite3.Connection) -> bool:
    """Return whether the last run of the gateway was stopped cleanly. If not, `meta.running` names
    the last start.
    """
    return (
        database.execute(
            "SELECT 1 FROM meta AS mark JOIN meta AS boot USING (value)"
            " WHERE mark.key = ? AND boot.key = 'boot'",
            (RUNNING,),
        ).fetchone()
        is None
    )


def begin(database: sqlite3.Connection, boot: int) -> None:
    """Record in `meta` that start `boot` is running."""
    database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (RUNNING, str(boot)))


def end(database: sqlite3.Connection) -> None:
    """Delete the mark `meta.running`. Call this when a run stops cleanly. Also call it in a copy of
    the store that contains the whole write-ahead log.
    """
    database.execute("DELETE FROM meta WHERE key = ?", (RUNNING,))


def skip_ahead(database: sqlite3.Connection) -> None:
    """Skip the spool ids that may have been used in a lost log, so that no id is used twice."""
    (last,) = database.execute("SELECT id FROM spool_last").fetchone()
    found = database.execute("SELECT value FROM meta WHERE key = ?", (GONE,)).fetchone()
    skipped = [*(json.loads(found[0]) if found else []), (last + 1, last + SKIPPED)]
    database.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        [("spool.last", str(last + SKIPPED)), (GONE, json.dumps(skipped))],
    )
