"""Export of a session to another gateway of the site.

In: an order in a commit, after the other rows of the commit are written. Out: the session's rows as
parts in `given_part` (`move_records.py`), and deleted from their tables, in the same transaction.
After a power cut the store has either the rows or the parts, never both.

Parts are written while rows are read: no more than one part and one message are in memory.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.broker.session import NEVER
from gateway.mqtt.message_ids import packet_id, unpack_ids
from gateway.store import move_records as to
from gateway.store.cells import teach
from gateway.store.move_records import PART_BYTES, head, record
from gateway.store.move_rows import SessionExport, name_of
from gateway.store.queue_reads import UNSOUND
from gateway.store.references import name
from gateway.store.row_checks import BITS, MARK_FITS, is_whole, put_checks, unsealed
from gateway.system.amounts import amount

log = logging.getLogger(__name__)

_QUEUE = (
    "SELECT queue.first, queue.count, queue.message, queue.skip, queue.flags, queue.extra,"
    " queue.share, message.topic, message.retain, message.count, message.properties,"
    " message.expires, message.body"
    " FROM queue JOIN message ON message.id = queue.message"
    " WHERE queue.session = ? ORDER BY queue.first"
)


def give(database: sqlite3.Connection, order: SessionExport) -> None:
    """Export a session. Call this inside a transaction. Parts of an earlier, unconfirmed move are
    replaced. The results are recorded in `order`. If the session's row is missing, or an entry of
    its queue cannot be sent, the session ends here and does not move; its client sees Session
    Present 0 at the other gateway.
    """
    delete_parts(database, [(order.key,)])
    found = database.execute(
        "SELECT expiry, left FROM session WHERE id = ?", (order.session,)
    ).fetchone()
    teach(database)
    (unsound,) = database.execute(
        f"SELECT count(*) FROM queue WHERE session = ? AND {UNSOUND}",  # noqa: S608
        (order.session,),
    ).fetchone()
    if found is None or unsound:
        log.error(
            "session of %s does not move to %s: %s. The session ends; its client gets Session"
            " Present 0 at its next CONNECT",
            name(name_of(order.key)),
            order.member,
            f"{amount(unsound, 'entry', 'entries')} of its queue cannot be read"
            if found
            else "the session is gone from the store",
        )
        database.execute("DELETE FROM given WHERE key = ?", (order.key,))
        _delete(database, order.session)
        return
    expiry, departed = found
    order.ends = None if expiry == NEVER else departed + expiry * 1000
    order.released = []
    parts = 0
    for part in _cut(_records(database, order, order.released)):
        row = database.execute(
            "INSERT OR REPLACE INTO given_part (key, part, body) VALUES (?, ?, ?)",
            (order.key, parts, part),
        ).lastrowid
        put_checks(database, "given_part", [(row, order.key, parts, part)])
        parts += 1
    database.execute(
        "INSERT OR REPLACE INTO given VALUES (?, ?, ?, ?, ?)",
        (order.key, order.member, parts, len(set(order.released)), order.ends),
    )
    _delete(database, order.session)


def delete_parts(database: sqlite3.Connection, keys: Sequence[tuple[str]]) -> None:
    """Delete the parts of exported sessions, and the checks of these parts. keys: rows that consist
    of one session key.
    """
    database.executemany(
        "DELETE FROM content_check WHERE kind = 'given_part'"
        " AND key IN (SELECT CAST(id AS TEXT) FROM given_part WHERE given_part.key = ?)",
        keys,
    )
    database.executemany("DELETE FROM given_part WHERE key = ?", keys)


def _delete(database: sqlite3.Connection, session: int) -> None:
    for rows in (
        "will WHERE client = (SELECT client FROM session WHERE id = ?)",
        "session WHERE id = ?",
        "subscription WHERE session = ?",
        "flow WHERE session = ?",
        "queue WHERE session = ?",
    ):
        database.execute(f"DELETE FROM {rows}", (session,))  # noqa: S608 - names of ours


def _records(
    database: sqlite3.Connection, order: SessionExport, released: list[int]
) -> Iterator[bytes]:
    one = (order.session,)
    session = database.execute(
        "SELECT client, expiry, left, incarnation, user FROM session WHERE id = ?", one
    ).fetchone()
    client, incarnation = session[0], session[3]
    yield record(to.SESSION, session)
    if order.move is not None:
        yield record(to.MOVE, order.move)
    for row in database.execute(
        "SELECT filter, options, identifier FROM subscription WHERE session = ?", one
    ):
        yield record(to.SUBSCRIPTION, row)
    flow = database.execute(
        "SELECT received, next, sent, released FROM flow WHERE session = ?", one
    ).fetchone() or (b"", 1, b"", b"")
    yield record(to.FLOW, flow)
    for row in database.execute(
        "SELECT due, delay, topic, qos, retain, properties, expiry, payload FROM will"
        " WHERE client = ?",
        (client,),
    ):
        yield record(to.WILL, row)
    if incarnation:
        marks = (
            "SELECT place, incarnation, highest, window, kept FROM mark"  # noqa: S608 - ours
            f" WHERE device = ? AND {MARK_FITS}"
        )
        for *row, kept in database.execute(marks, (client,)):
            yield record(to.MARK, (*row, unsealed(kept)))
    yield from _queue(database, order.session, released, flow[1], set(unpack_ids(flow[2])))
    yield record(to.END, ())


def _queue(
    database: sqlite3.Connection,
    session: int,
    released: list[int],
    unsent: int,
    flying: set[int],
) -> Iterator[bytes]:
    """Yield the records of a queue. The record of a message comes before the first queue entry that
    refers to it. released: list to which the message number of each exported entry is appended.
    unsent: number of the next message to send. flying: packet identifiers in flight.
    """
    known: dict[int, int] = {}
    for row in database.execute(_QUEUE, (session,)):
        first, count, message = row[:3]
        if first + count <= unsent and not any(
            packet_id(number) in flying for number in range(first, first + count)
        ):
            continue  # all sent and acknowledged; the row is deleted later
        released.append(message >> BITS)
        if message not in known:
            known[message] = len(known) + 1
            yield record(to.MESSAGE, row[7:])
        yield record(to.QUEUE, (first, count, known[message], *row[3:7]))


def _cut(pieces: Iterator[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= PART_BYTES:
            yield bytes(buffer[:PART_BYTES])
            del buffer[:PART_BYTES]
    if buffer:
        yield bytes(buffer)


class StoredParts(Sequence[bytes]):
    """The parts of an outbound session. Each access reads a part from the store, and raises
    IndexError if the part is gone or has changed. now: returns the present time in ms on the time
    axis. The head of the first part contains this time.
    """

    def __init__(self, database: sqlite3.Connection, key: str, now: Any) -> None:
        self._database = database
        self._key = key
        self._now = now
        self._parts, self._messages = database.execute(
            "SELECT parts, messages FROM given WHERE key = ?", (key,)
        ).fetchone()

    def __len__(self) -> int:
        return int(self._parts)

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int) or not 0 <= index < self._parts:
            raise IndexError(index)
        found = self._database.execute(
            "SELECT id, key, part, body FROM given_part WHERE key = ? AND part = ?",
            (self._key, index),
        ).fetchone()
        if found is None or not is_whole(self._database, "given_part", found):
            log.error(
                "session of %s, which has moved to another gateway: part %d of %d is gone from the"
                " store, or has changed there. Its client begins a new session",
                name(name_of(self._key)),
                index + 1,
                self._parts,
            )
            raise IndexError(index)
        body = found[3]
        return body if index else head(self._now(), self._messages, body) + body
