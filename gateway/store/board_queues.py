"""Lists messages that wait for boards. A restore loses these messages, because a restored or cloned
store begins new sessions with its boards (`generation.py`).

In: an open store, of any version. Out: lines of text for people: one for each queue entry, which is
one message or a run of messages, up to MOST_LINES.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from gateway.mqtt.errors import quote
from gateway.store.schema import connect_to_read

MOST_LINES = 20
_LONGEST = 80
"""Largest number of bytes of a payload that are shown."""


def waiting_for_boards(database: sqlite3.Connection) -> list[str]:
    """Return a line of text for each queue entry of a board: at most `MOST_LINES`, and one line
    about the rest. The list is empty if the store cannot be read; the caller reports that.
    """
    try:
        rows = database.execute(
            "SELECT CAST(client AS TEXT), CAST(topic AS TEXT), queue.count, message.count,"
            " coalesce(CAST(substr(body, 1, ?) AS BLOB), x'') FROM queue"
            " JOIN session ON session.id = queue.session JOIN message ON message.id = message"
            " WHERE incarnation <> 0 AND topic <> '' ORDER BY client, first",
            (_LONGEST,),
        ).fetchall()
    except sqlite3.Error:
        return []
    lines = [
        f"{client}: {quote(topic)}"
        + (f" {bytes(body).decode(errors='replace')!r}" if whole == 1 else f", {count} messages")
        for client, topic, count, whole, body in rows[:MOST_LINES]
    ]
    if len(rows) > MOST_LINES:
        lines.append(f"and {len(rows) - MOST_LINES} more")
    return lines


def dropped_by_restore(store: Path) -> list[str]:
    """Return lines of text about the messages that a restore of this store drops. Return no line if
    the store cannot be read. store: path of the database.
    """
    try:
        with closing(connect_to_read(store)) as database:
            return waiting_for_boards(database)
    except (sqlite3.Error, OSError):
        return []
