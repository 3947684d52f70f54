"""View of the spool for the site's other members, which may keep copies of its rows.

In: the gateway's database. Out: rows with their final keys, and reports about the rows that have
landed (`gateway/site/replication/messages.py`).

The *line* is a random identifier of the spool's series of rows, and unrelated to serial lines. The
gateway generates a new line if ids may be reused, or rows may be lost: at the first start with
`copies = 2`, in a restored store, and if another member has rows that this disk lacks. From then
on, the keys of new rows without identity have another epoch. So no new row has the key of a lost
row.
"""

import json
import secrets
import sqlite3
from typing import Any

from gateway.store.cells import teach
from gateway.store.row_checks import SOUND
from gateway.uplink.numbers import IDENTITIES, Numbers

_LINE = "copies.line"


def line(database: sqlite3.Connection) -> str | None:
    """Return the line: the random identifier of the spool's present series of rows. None before the
    first one is generated.
    """
    return Numbers(database).get(_LINE)


def draw_line(database: sqlite3.Connection, first: int) -> None:
    """Begin a new line, and a new epoch for rows without identity. The keys of such rows contain
    the new epoch if their ids are `first` or higher. Raises sqlite3.Error, and then changes
    nothing.
    """
    with database:
        database.execute("BEGIN IMMEDIATE")
        known = [item for item in Numbers(database).identities() if item[0] < first]
        epochs = [*known, (first, secrets.token_hex(4))]
        database.executemany(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)",
            [(_LINE, secrets.token_hex(8)), (IDENTITIES, json.dumps(epochs))],
        )


def landed(database: sqlite3.Connection, after: int) -> dict[str, Any]:
    """Return a report on the spool: its line, the id of the first row that has not landed, the
    gateway's name, and the epochs of the keys. The report is read in one transaction. after: id of
    the newest row that ever existed, used if the spool is empty.
    """
    database.execute("BEGIN")
    try:
        numbers = Numbers(database)
        (first,) = database.execute("SELECT min(id) FROM spool").fetchone()
        epochs = numbers.identities()
        first = first or after + 1
        while len(epochs) > 1 and epochs[1][0] <= first:
            del epochs[0]  # all rows of this epoch have landed
        return {
            "line": numbers.get(_LINE),
            "first": first,
            "name": numbers.origin().gateway,
            "epochs": tuple((begin, int(epoch, 16)) for begin, epoch in epochs),
        }
    finally:
        database.execute("ROLLBACK")


def numbered(database: sqlite3.Connection, last: int) -> int:
    """Return the sequence of the last row without identity whose id is at most `last`."""
    database.execute("BEGIN")
    try:
        return _numbered(database, last)
    finally:
        database.execute("ROLLBACK")


def _numbered(database: sqlite3.Connection, last: int) -> int:
    (first,) = database.execute("SELECT min(id) FROM spool").fetchone()
    before = Numbers(database).counted_before(first or last + 1)
    (count,) = database.execute(
        "SELECT count(*) FROM spool WHERE device IS NULL AND id <= ?", (last,)
    ).fetchone()
    return before + int(count)


def rows(
    database: sqlite3.Connection,
    after: int,
    before: int,
    count: int,
    most: int,
    known: tuple[int, int],
) -> tuple[list[tuple[Any, ...]], bool, tuple[int, int]]:
    """Return rows with ids above `after` and below `before`; whether no such row remains; and
    `known` for the next call.

    Rows without identity get their sequence. Rows with changed cells are left out. At most `count`
    rows and `most` bytes are returned; a larger row is returned alone. known: the id of a row, and
    the sequence of the last row without identity up to this id. One transaction is used, because
    the uplink removes rows of the spool at the same time.
    """
    database.execute("BEGIN")
    try:
        while True:
            found, whole = _between(database, after, before, count, most)
            if not found:
                return found, whole, known
            row, number = known
            if found[0][0] != row + 1:
                number = _numbered(database, found[0][0] - 1)
            after, nameless = found[-1][0], sum(row[1] is None for row in found)
            known = after, number + nameless
            sound = [row[:-1] for row in with_numbers(found, number) if row[-1]]
            if sound or whole:
                return sound, whole, known
    finally:
        database.execute("ROLLBACK")


def _between(
    database: sqlite3.Connection, after: int, before: int, count: int, most: int
) -> tuple[list[tuple[Any, ...]], bool]:
    """Read rows with ids between `after` and `before`, the lowest ids first: at most `count` rows,
    and at most `most` bytes of topics and payloads, but at least one row. Return the rows, and
    whether it is certain that there are no more. The last cell of each row says whether the row is
    still as it was stored. A changed row has empty texts and an empty payload here; the uplink
    reports it.
    """
    teach(database)
    found: list[tuple[Any, ...]] = []
    for row in database.execute(
        f"WITH page AS MATERIALIZED (SELECT *, {SOUND} AS fits FROM spool WHERE id > ? AND id < ?"  # noqa: S608
        " ORDER BY id LIMIT ?) SELECT id, iif(fits OR device IS NULL, device, ''), incarnation,"
        " sequence, iif(fits, client, ''), iif(fits, topic, ''), iif(fits, payload, x''), boot,"
        " monotonic, received, fits FROM page",
        (after, before, count),
    ):
        most -= len(row[5]) + len(row[6])
        if found and most < 0:
            return found, False
        found.append(row)
    return found, len(found) < count


def with_numbers(found: list[tuple[Any, ...]], number: int) -> list[tuple[Any, ...]]:
    """Return the rows, with sequences for rows without identity. number: sequence of the last row
    without identity before these rows.
    """
    numbered_rows = []
    for row in found:
        if row[1] is None:
            number += 1
            row = (*row[:3], number, *row[4:])
        numbered_rows.append(row)
    return numbered_rows
