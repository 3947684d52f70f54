"""Removal of rows from the spool, as the uplink removes them after they have landed."""

import sqlite3


def drain(database: sqlite3.Connection, last: int | None = None) -> None:
    """Remove all rows, or those up to `last`. Their row numbers are not used again."""
    database.execute(
        "INSERT OR REPLACE INTO meta SELECT 'spool.last', CAST(id AS TEXT) FROM spool_last"
    )
    database.execute("DELETE FROM spool WHERE ?1 IS NULL OR id <= ?1", (last,))
