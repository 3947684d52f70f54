"""Views of a store for people: retained messages at any time, and the rest while no gateway runs. A
few functions change the store of a stopped gateway.

In: a data directory. Out: sessions as `session_views.py` describes them, retained messages,
messages that are set aside, and the newest publications of boards.
"""

import json
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gateway.broker.publish_run import OVERHEAD
from gateway.broker.session import Subscription
from gateway.mqtt.message_ids import packet_id, unpack_ids, unpack_set
from gateway.store.cells import sound, teach
from gateway.store.move_rows import name_of
from gateway.store.references import missing
from gateway.store.schema import (
    START_GATEWAY,
    StoreError,
    closed_to_us,
    connect,
    connect_to_read,
    existing,
    unusable,
)
from gateway.store.session_views import SessionView, expiry_of, subscription_view
from gateway.store.uptime import axis, uptime
from gateway.system.causes import cause
from gateway.system.lock import ProcessLock

_SESSIONS = """
    SELECT id, client, expiry, left, incarnation, user,
        coalesce(next, 1), coalesce(sent, x''), coalesce(released, x''), coalesce(received, x''),
        (SELECT count(*) FROM subscription WHERE session = id),
        (SELECT coalesce(sum(max(0, first + count - max(first, coalesce(next, 1)))), 0)
        FROM queue WHERE queue.session = id),
        (SELECT coalesce(sum(max(0, first + count - max(first, coalesce(next, 1))) * size), 0)
        FROM queue WHERE queue.session = id)
    FROM session LEFT JOIN flow ON flow.session = id WHERE expiry > 0 AND length(client) > 0
"""
"""SQL query: the sessions of clients. Forwarders of moved sessions are left out: their client
identifier begins with U+0000, which ends the text for `length`
(`gateway/site/moving/moving.py`).
"""


@dataclass(frozen=True, slots=True)
class RetainedView:
    """A retained message. client: its publisher. bytes: size of the payload. expires_s: seconds
    until it expires, None for never.
    """

    topic: str
    client: str
    qos: int
    bytes: int
    expires_s: int | None


@dataclass(frozen=True, slots=True)
class AsideView:
    """A message that can never reach the other broker of a bridge.

    set_aside: µs since 1970, None if the clock was not known. properties: encoded, without the
    Property Length. expires: seconds on the time axis, None for never. reason: why the other broker
    cannot get the message.
    """

    number: int
    bridge: str
    set_aside: int | None
    topic: str
    qos: int
    retain: int
    properties: bytes
    expires: float | None
    payload: bytes
    reason: str


@contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    path = existing(folder)
    try:
        with closing(connect_to_read(path)) as database:
            if not database.execute("PRAGMA user_version").fetchone()[0]:
                raise StoreError("the database has no tables", str(path), START_GATEWAY)
            try:
                yield database
            except (TypeError, ValueError, struct.error) as error:
                reason = next(map(str, missing(database)), str(error))
                hint = f"See: onceway store check --data {folder}"
                raise StoreError(f"the store is damaged ({reason})", str(path), hint) from error
    except sqlite3.DatabaseError as error:
        if (closed := closed_to_us(path, error)) is not None:
            raise closed from error
        reason, todo = cause(error, folder)
        raise StoreError(
            f"the store cannot be read: {reason} ({error})", str(path), todo
        ) from error


@contextmanager
def changing(folder: Path) -> Iterator[sqlite3.Connection]:
    """Yield the database of a store for changes, while no gateway runs. Raises StoreError if there
    is none or it is damaged, and Locked if a gateway runs.
    """
    path = existing(folder)
    try:
        with closing(ProcessLock(folder / "gateway.lock")), closing(connect(path)) as database:
            yield database
    except sqlite3.Error as error:
        raise unusable(folder, error) from error


def aside(
    folder: Path, bridge: str | None = None, numbers: list[int] | None = None
) -> list[AsideView]:
    """Return the messages that a bridge has set aside, the oldest first. Damaged messages are left
    out. bridge: name of the bridge, None for all bridges. numbers: numbers of the messages to read,
    None for all.
    """
    with _opened(folder) as database:
        if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'aside'").fetchone():
            return []  # an older version lacks the table
        teach(database)
        rows = database.execute(
            "SELECT id, bridge, at, topic, qos, retain, properties, expires / 1000.0, payload,"  # noqa: S608
            " reason FROM aside WHERE bridge = coalesce(?1, bridge)"
            " AND (?2 IS NULL OR id IN (SELECT value FROM json_each(?2)))"
            f" AND {sound('aside')} ORDER BY id",
            (bridge, None if numbers is None else json.dumps(numbers)),
        )
        return [AsideView(*row) for row in rows]


def discard_aside(database: sqlite3.Connection, bridge: str, numbers: list[int]) -> int:
    """Delete messages that a bridge has set aside, while no gateway runs. Return the number of
    deleted messages. numbers: the messages to delete; empty for all.
    """
    with database:
        if not numbers:
            return database.execute("DELETE FROM aside WHERE bridge = ?", (bridge,)).rowcount
        return database.executemany(
            "DELETE FROM aside WHERE bridge = ? AND id = ?",
            [(bridge, number) for number in numbers],
        ).rowcount


def newest_of_boards(folder: Path, most: int) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield the publications of boards among the newest `most` rows of the spool, the oldest first:
    device, incarnation, sequence and payload. Damaged rows are left out.
    """
    with _opened(folder) as database:
        teach(database)
        yield from database.execute(
            "SELECT device, incarnation, sequence, payload FROM spool"  # noqa: S608 - names of ours
            " WHERE id > (SELECT max(id) FROM spool) - ? AND device IS NOT NULL"
            f" AND {sound('spool')} ORDER BY id",
            (most,),
        )


def sessions(folder: Path, utc: int | None) -> list[SessionView]:
    """Return all sessions of clients, in the order in which they began. utc: µs since 1970, None
    while the clock is not known.
    """
    with _opened(folder) as database:
        return [
            _session(database, row, axis(database, utc, uptime()))
            for row in database.execute(f"{_SESSIONS} ORDER BY id")
        ]


def places(folder: Path) -> tuple[set[str], dict[str, str]]:
    """Return the clients with a suspect session, and the clients whose session has moved to another
    gateway of the site. The second group is a dict from client to gateway
    (`gateway/site/wiring/sessions.py`).
    """
    with _opened(folder) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'given'").fetchone():
            return set(), {}  # the store of an older gateway
        suspect = database.execute("SELECT key FROM place WHERE doubtful")
        moved = database.execute("SELECT key, member FROM given")
        return {name_of(key) for (key,) in suspect}, {name_of(key): name for key, name in moved}


def session(folder: Path, client: str, utc: int | None) -> dict[str, Any] | None:
    """Return one session with its subscriptions as JSON fields, or None if there is no such
    session. utc: µs since 1970, None while the clock is not known.
    """
    with _opened(folder) as database:
        row = database.execute(f"{_SESSIONS} AND client = ?", (client,)).fetchone()
        if row is None:
            return None
        found = database.execute(
            "SELECT filter, options, identifier FROM subscription WHERE session = ? ORDER BY"
            " filter",
            row[:1],
        )
        subscriptions = [asdict(subscription_view(Subscription.stored(*item))) for item in found]
        return asdict(_session(database, row, axis(database, utc, uptime()))) | {
            "subscriptions": subscriptions
        }


def retained(folder: Path, utc: int | None) -> list[RetainedView]:
    """Return every retained message, by topic. A gateway may run meanwhile. utc: µs since 1970,
    None while the clock is not known.
    """
    with _opened(folder) as database:
        now = axis(database, utc, uptime())
        rows = database.execute(
            "SELECT topic, client, qos, length(payload), expires FROM retained"
            " WHERE length(payload) > 0 ORDER BY topic"  # an empty payload records a deletion
        )
        return [
            RetainedView(
                topic,
                client,
                qos,
                size,
                None if expires is None else max(0, round(expires / 1000 - now)),
            )
            for topic, client, qos, size, expires in rows
        ]


def _session(database: sqlite3.Connection, row: tuple[Any, ...], now: float) -> SessionView:
    (
        number,
        client,
        expiry,
        departed,
        incarnation,
        user,
        next_number,
        sent,
        released,
        received,
        subscriptions,
        unsent,
        unsent_bytes,
    ) = row
    flying = set(unpack_ids(sent))
    flown_bytes = 0
    if flying:
        rows = database.execute(
            "SELECT first, count, size FROM queue WHERE session = ? AND first < ?",
            (number, next_number),
        )
        for first, count, size in rows:
            flown = sum(
                packet_id(n) in flying for n in range(first, min(first + count, next_number))
            )
            flown_bytes += flown * (size + OVERHEAD)
    return SessionView(
        client=client,
        connected=False,
        address=None,
        version=None,
        user=user,
        device=incarnation != 0,
        expiry_s=expiry_of(expiry),
        away_s=None if departed is None else max(0, int(now - departed / 1000)),
        queued=unsent + len(flying),
        queued_bytes=unsent_bytes + unsent * OVERHEAD + flown_bytes,
        inflight=len(flying) + len(released) // 2,
        receiving=len(unpack_set(received)),
        subscriptions=subscriptions,
    )


def end_session(database: sqlite3.Connection, client: str) -> bool:
    """Mark a session as ended. The next start of the gateway deletes it, publishes its will, and
    gives its messages from shared subscriptions to other subscribers. Return False if there is no
    such session, or if it has already been marked. The gateway must be stopped.
    """
    return (
        database.execute(
            "UPDATE session SET expiry = 0 WHERE client = ? AND expiry > 0", (client,)
        ).rowcount
        > 0
    )
