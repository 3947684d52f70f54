"""Adds checks, at a start, to rows that an older version wrote without a check: messages, and rows
of the tables in `row_checks.COLUMNS`.

In: an open store without damaged rows, inside a transaction. Out: each such row has its check.
"""

import sqlite3

from gateway.store.row_checks import BITS, COLUMNS, content_sum, sum_of

_NUMBER = (
    "CREATE TEMP TABLE numbered AS SELECT id AS old,"  # noqa: S608 - names of ours
    f" row_number() OVER (ORDER BY id) << {BITS} |"
    " content_sum(CAST(topic AS BLOB), retain, count, properties, expires, body) AS new"
    " FROM message",
    "CREATE UNIQUE INDEX temp.numbered_old ON numbered (old)",
    "UPDATE queue SET message = coalesce((SELECT new FROM numbered WHERE old = message), message)",
    # first negative numbers, which no other row has
    "UPDATE message SET id = -(SELECT new FROM numbered WHERE old = id)",
    "UPDATE message SET id = -id",
    "DROP TABLE temp.numbered",
)


def check_messages(database: sqlite3.Connection) -> None:
    """Change the row number of each message to one that contains the message's check, also in
    `queue`.
    """
    database.create_function("content_sum", 6, content_sum, deterministic=True)
    for statement in _NUMBER:
        database.execute(statement)


def settle_contents(database: sqlite3.Connection, checked: bool) -> None:
    """Delete the checks of rows that no longer exist, in each table of COLUMNS. checked: whether
    the existing rows have checks; if not, write these checks.
    """
    for table, (key, *_) in COLUMNS.items():
        database.execute(
            f"DELETE FROM content_check WHERE kind = '{table}'"  # noqa: S608 - names of ours
            f" AND key NOT IN (SELECT CAST({key} AS TEXT) FROM {table})"
        )
        if not checked:
            database.execute(
                "INSERT OR REPLACE INTO content_check"  # noqa: S608
                f" SELECT '{table}', CAST({key} AS TEXT), {sum_of(table)} FROM {table}"
            )
