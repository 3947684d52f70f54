"""Import of a session from another gateway of the site.

In: an order in a commit, with the parts that the other gateway sent (`move_records.py`). Out: the
session's rows, in the same transaction, and the session's state as a start would read it. If the
parts are wrong, none of their rows is written, and the order gets the reason; the rest of the
commit is written nevertheless.

Times are converted from the sender's time axis to the time axis of this gateway. Sessions and
messages get new numbers. Numbers in the queue, and so packet identifiers, stay the same.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from gateway.broker.publish_run import OVERHEAD
from gateway.broker.store_rows import Recovered
from gateway.mqtt.topics import SHARE_PREFIX
from gateway.store.move_out import StoredParts
from gateway.store.move_records import (
    FLOW,
    MARK,
    MESSAGE,
    MOVE,
    QUEUE,
    SESSION,
    SUBSCRIPTION,
    WILL,
    Unfit,
    Values,
    read_head,
    records,
)
from gateway.store.move_rows import OWN, Moved, SessionImport, key_of, name_of
from gateway.store.queue_reads import DELIVERY
from gateway.store.row_checks import number_of, put_checks, row_number


def take(database: sqlite3.Connection, order: SessionImport) -> None:
    """Import a session. Call this inside a transaction. The result is recorded in `order`."""
    order.wrong = None
    database.execute("SAVEPOINT taking")
    try:
        parts = order.parts or StoredParts(database, order.key, lambda: order.now)
        marks = _Import(database, order, parts).run()
        order.state = _read(database, order, marks)
    except (Unfit, OverflowError, sqlite3.IntegrityError) as error:
        order.wrong = str(error)
        database.execute("ROLLBACK TO taking")
    database.execute("RELEASE taking")


class _Import:
    def __init__(
        self, database: sqlite3.Connection, order: SessionImport, parts: Sequence[bytes]
    ) -> None:
        self._database = database
        self._order = order
        self._parts = parts
        self._later = order.now - read_head(parts).now
        """Milliseconds to add to a time of the sender, to get the time on this gateway's time axis.
        """
        self._client = name_of(order.key)
        self._messages: list[tuple[int, int, int]] = []
        """For each message: number of publications, bytes of one publication (`PublishRun.weight`),
        row number.
        """
        self._subscriptions = 0
        self._unsent = 0
        """Number of the next message to send; 0 until the FLOW record was read."""
        self._queued = 0
        self._next = 1
        """Lowest number that the next queue entry may have."""
        self._marks: list[tuple[Any, ...]] = []
        self._filters: list[str] = []
        self._move: Values | None = None

    def run(self) -> list[tuple[Any, ...]]:
        """Import all records except the rows of `mark`, and return these rows."""
        takers: dict[int, Callable[..., None]] = {
            SESSION: self._session,
            SUBSCRIPTION: self._subscription,
            FLOW: self._flow,
            WILL: self._will,
            MARK: self._mark,
            MOVE: self._keep_move,
            MESSAGE: self._message,
            QUEUE: self._queue,
        }
        for place, (kind, values) in enumerate(records(self._parts)):
            if (kind == SESSION) != (place == 0):
                raise Unfit("its parts do not begin with a session record, or have two")
            if (take := takers.get(kind)) is not None:
                take(*values)
        if self._move is not None:
            self._begin_move(*self._move)
        return self._marks

    def _put(self, table: str, *values: Any) -> None:
        places = ",".join("?" * len(values))
        self._database.execute(f"INSERT INTO {table} VALUES ({places})", values)  # noqa: S608 - names of ours

    def _time(self, value: int | None) -> int | None:
        return None if value is None else value + self._later

    def _session(
        self, client: str, expiry: int, departed: int, incarnation: int, user: str | None
    ) -> None:
        order = self._order
        if key_of(client, user, incarnation) != order.key:
            raise Unfit("it is the session of another client")
        self._incarnation = incarnation
        departed = max(0, min(departed + self._later, order.now))
        self._put("session", order.session, client, expiry, departed, incarnation, user)

    def _subscription(self, *values: Any) -> None:
        order = self._order
        self._subscriptions += 1
        if self._subscriptions > order.most_subscriptions:
            raise Unfit(
                f"it has more than {order.most_subscriptions} subscriptions (limits.subscriptions)"
            )
        self._filters.append(values[0])
        self._put("subscription", order.session, *values)

    def _flow(self, *values: Any) -> None:
        self._unsent = values[1]
        self._put("flow", self._order.session, *values)

    def _will(self, due: int | None, *rest: Any) -> None:
        will = self._client, self._time(due), *rest
        self._put("will", *will)
        put_checks(self._database, "will", [will])

    def _mark(self, *values: Any) -> None:
        if not self._incarnation or len(self._marks) == 4:
            raise Unfit("it has invalid anti-replay windows")
        self._marks.append((self._client, *values))

    def _keep_move(self, *values: Any) -> None:
        if self._move is not None:
            raise Unfit("its parts have two MOVE records")
        self._move = values

    def _begin_move(self, moving_id: int, moves: int, giver: str, forwarded: int) -> None:
        """Write the session's row of `journey`. It lists the other gateways whose cut has not
        arrived: until then, messages from them are not for the session (`session_moves.py`). It
        also lists the gateways whose forwarders may still have messages for the session: the giver,
        or this gateway if the session comes back.
        """
        order = self._order
        closed, filters = (
            sorted(order.others),
            [item for item in self._filters if not item.startswith(SHARE_PREFIX)],
        )
        tails = [giver] if forwarded and giver in order.others else []
        if giver == order.me:
            moves, closed, tails = moves - 1, [], [OWN]
        lists = json.dumps(closed), json.dumps(tails), json.dumps(filters)
        more = None, None, None, "[]"
        self._put("journey", order.session, moving_id, moves, *lists, *more)

    def _message(
        self, topic: str, retain: int, count: int, properties: bytes, expires: int, body: bytes
    ) -> None:
        if len(self._messages) >= self._order.most_messages:
            raise Unfit("it has more messages than its header announces")
        if len(body) % count:
            raise Unfit("the length of a message differs from its length field")
        number = self._order.first_message + len(self._messages)
        message = number, topic, retain, count, properties, self._time(expires), body
        row = row_number(message)
        self._put("message", row, *message[1:])
        self._messages.append((count, _weight(len(body) // count, topic, properties), row))

    def _queue(
        self, first: int, count: int, message: int, skip: int, flags: int, extra: bytes, share: str
    ) -> None:
        if not self._unsent or message > len(self._messages) or first < self._next:
            raise Unfit("an entry of its queue is invalid")
        self._queued += count
        if self._queued > self._order.most_queued:
            raise Unfit("its queue has more messages than allowed (limits.queue_messages)")
        length, size, row = self._messages[message - 1]
        if skip + count > length:
            raise Unfit("an entry of its queue is longer than its message")
        if first > self._unsent:  # a number is sent only when the disk knows all earlier ones
            if self._next <= self._unsent:
                self._flow_begins(first)
            elif first != self._next:
                raise Unfit("an entry of its queue is missing")
        self._next = first + count
        self._put("queue", self._order.session, first, count, row, skip, flags, extra, share, size)

    def _flow_begins(self, number: int) -> None:
        """Set the number of the next message to send to `number`, the first one in the queue. The
        numbers before it belong to no message.
        """
        self._unsent = number
        self._database.execute(
            "UPDATE flow SET next = ? WHERE session = ?", (number, self._order.session)
        )


def _weight(size: int, topic: str, properties: bytes) -> int:
    """Return the size of one publication in bytes, as `PublishRun.weight` counts it. size: bytes of
    the payload.
    """
    return size + len(properties) + max(0, 2 + len(topic.encode()) - OVERHEAD)


def _read(
    database: sqlite3.Connection, order: SessionImport, marks: list[tuple[Any, ...]]
) -> Recovered:
    """Return the session's state as a start would read it. marks: the board's rows of `mark`, which
    came in the parts. Raises Unfit.
    """

    def rows(query: str, *keys: Any) -> list[tuple[Any, ...]]:
        return database.execute(query, keys or (order.session,)).fetchall()

    found = rows("SELECT next FROM flow WHERE session = ?")
    if not found:
        raise Unfit("its packet identifiers are missing")
    border = found[0][0]
    return Recovered(
        sessions=rows("SELECT * FROM session WHERE id = ?"),
        subscriptions=rows("SELECT * FROM subscription WHERE session = ?"),
        flows=rows("SELECT * FROM flow WHERE session = ?"),
        queue=rows(
            f"SELECT queue.session, {DELIVERY} FROM queue"  # noqa: S608 - names of ours
            " JOIN message ON message.id = queue.message"
            " WHERE queue.session = ? AND first < ? ORDER BY first",
            order.session,
            border,
        ),
        tails=rows(
            "SELECT session, min(first), max(first + count), sum(count), sum(count * size)"
            " FROM queue WHERE session = ? AND first >= ? GROUP BY session",
            order.session,
            border,
        ),
        references=rows(
            f"SELECT {number_of('message')}, count(*) FROM queue WHERE session = ? GROUP BY message"  # noqa: S608
            " HAVING count(*) > 1"
        ),
        wills=rows("SELECT * FROM will WHERE client = ?", name_of(order.key)),
        marks=marks,
        neighbours=Moved(moving_sessions=rows("SELECT * FROM journey WHERE session = ?")),
    )
