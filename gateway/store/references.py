"""References between rows of the store, and rows that are missing.

In: an open store. Out: findings, one for each session, batch or range of the spool that lacks a
row. A missing row breaks no rule of SQLite: a join of two tables silently omits the other row. So
this module checks each reference: at every start (`recovery.py`), for `onceway store check` and for
a salvage. `queue_reads.py` checks the references of a queue again when it reads a page of it.

A → B: a row of A needs its row, or its rows, of B. Other lines: a rule for the rows of a table.

    subscription, flow, `journey`, queue → session
    queue → message                    the message has all publications of the entry, and each
                                       makes a valid PUBLISH
    queue                              numbers without a gap; in sessions that were there when the
                                       gateway last started or stopped, the first number is the
                                       next message to send
    a cell of a row                    its rule (`cells.py`, `meta.py`)
    session (client)                   its index
    flow (sent, not acknowledged)      → queue
    queue (sent completely)            → flow, as in flight or released. Checked only if the latest
                                       start has deleted the entries that an older version had left
                                       (`SWEPT`)
    session                            → flow, for sessions up to the number in `FLOWS`
    given → given_part, given_part → given
    batch → batch_content → batch
    batch that has not landed          → its rows of the spool
    spool                              numbers without a gap, after the last batch
    meta                               the epoch, the name and the count of starts
    rows of `twins.TABLES`             → their copies

If no other row refers to a row, its loss is not detected: a retained message, a will, a row of
`mark`, the newest row of the spool while it has no check.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from gateway.config import INSIDE, MEMBER
from gateway.mqtt.message_ids import IDENTIFIERS, packet_id, unpack_ids
from gateway.store import meta, twins
from gateway.store.cells import broken, sound, teach
from gateway.store.move_rows import name_of
from gateway.store.queue_reads import PLAUSIBLE, WHOLE
from gateway.store.row_checks import CHECKED, OURS
from gateway.system.amounts import amount, are
from gateway.system.logs import printable

FLOWS = "flows"
"""Key in `meta`: the number of the start that wrote it, and the highest session number at that
start. Sessions up to this number have a row in `flow` and a complete queue. This is only certain if
no older version, which writes no such rows, has been started since then.
"""
GONE = "spool.gone"
"""Key in `meta`: JSON list of the ranges of spool ids that need no row: a salvage reported them as
lost, a person discarded them, the uplink set the damaged row aside, or a start skipped them
(`run_marks.py`).
"""


SWEPT = "swept"
"""Key in `meta`. Its value is the number of the start at which the key was written. If no later
start has followed, `queue` has no rows whose messages a commit has recorded as acknowledged. A
later start of an older version may leave such rows.
"""

Kind = Literal["session", "own", "anew", "stray", "given", "row", "refused", "other"]


@dataclass(frozen=True, slots=True)
class Missing:
    """A missing or damaged row.

    kind: decides what a start does (`recovery.py: _CONSEQUENCE`). `session`: a row of a client's
    session, which cannot continue. `own`: a row of the session of a bridge or of another gateway;
    its other messages continue. `anew`: a row of the session of a bridge or of another gateway,
    which cannot continue. `stray`: existing rows whose session is missing. `given`: a part of an
    exported session. `row`: a damaged row that no other row needs. `refused`: a row without which
    no start is possible. `other`: a row without consequence for a start. session: number of the
    session, 0 for none.
    """

    text: str
    kind: Kind = "other"
    session: int = 0

    def __str__(self) -> str:
        return self.text


_MESSAGES = f"""
    SELECT session, CASE
            WHEN NOT ({PLAUSIBLE}) THEN 'damaged'
            WHEN message.id IS NULL THEN 'gone'
            WHEN message.count < 1 OR length(body) % message.count THEN 'length'
            ELSE 'damaged' END AS what,
        count(*), total(queue.count)
    FROM queue LEFT JOIN message ON message.id = queue.message
    WHERE ({WHOLE}) IS NOT TRUE GROUP BY session, what
"""  # noqa: S608 - texts of ours
_DAMAGED = "an entry of its queue is damaged"
_PLACES = f"""
    SELECT queue.session, max(first + count)
        - total(first + count - max(first, coalesce(next, 1)))
        - iif(queue.session <= ?, coalesce(next, 1), min(max(first, coalesce(next, 1)))) AS gap,
        count(*)
    FROM queue JOIN session ON session.id = queue.session
        LEFT JOIN flow ON flow.session = queue.session
    WHERE {PLAUSIBLE} AND first + count > coalesce(next, 1) AND client NOT LIKE '{MEMBER}%'
    GROUP BY queue.session HAVING gap <> 0
"""  # noqa: S608 - texts of ours
_FLOW = sound("flow")
ENDING = ("session", "subscription", "flow", "journey")
"""Tables of sessions: if a row is damaged, its session ends."""
ALONE = ("retained", "will", "mark", "aside", "origin", "given", "given_part")
"""Tables whose rows stand alone: if a row is damaged, a start deletes only this row. For `given`
and `given_part`, it deletes all rows of the same exported session.
"""
_LOOKED_AT = (*ENDING, *ALONE, "place", "batch", "batch_content")
"""Tables of which a start checks each cell. Cells of `queue` and `message` are checked together
(`queue_reads.py`), and the uplink checks cells of `spool`.
"""
_IS_FORWARDER = "length(client) = 0 AND client <> ''"
"""SQL condition: true if the session is a forwarder (`moving.py`). The client identifier of a
forwarder has length 0 for SQLite.
"""
_KEYS = "(SELECT session, key FROM journey)"
_MISTAKEN = f"({_IS_FORWARDER}) <> (key IS NOT NULL)"
_CROSSED = (
    "SELECT id, client FROM session NOT INDEXED EXCEPT"
    " SELECT id, client FROM session INDEXED BY sqlite_autoindex_session_1"
)
_HIGHEST = (1 << 63) - 1
_OF_SESSIONS = ("subscription", "flow", "journey", "queue")
_STRAY = "session NOT IN (SELECT id FROM session)"


def missing(database: sqlite3.Connection, tables: frozenset[str] | None = None) -> list[Missing]:
    """Check every reference, and return the missing and damaged rows. If one of them makes a start
    impossible, only such rows are returned. tables: the tables that the store has; checks that need
    other tables are left out. None: the store has all tables.
    """
    teach(database)
    if refused := [item for item in _meta(database) if item.kind == "refused"]:
        return refused  # the checks below read these values
    strict, database.text_factory = database.text_factory, _lenient
    found: list[Missing] = []
    try:
        for needed, look in _LOOKS:
            if tables is None or needed <= tables:
                found += look(database)
            if refused := [item for item in found if item.kind == "refused"]:
                return refused  # the next check may fail at such a cell
        return found
    finally:
        database.text_factory = strict


def _lenient(data: bytes) -> str:
    return data.decode(errors="replace")


def _cells(database: sqlite3.Connection) -> Iterator[Missing]:
    """Yield damaged cells, and sessions whose client identifier differs from the one in the table's
    index.
    """
    known = {row[0]: row[1:] for row in database.execute("SELECT id, client, user FROM session")}
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    for table in tables.intersection(_LOOKED_AT):
        for item in broken(database, table):
            if table not in ENDING or item.row[0] not in known:
                yield Missing(str(item), _KINDS.get(table, "row"))
                continue
            client, user = known[item.row[0]]
            yield _ended(item.row[0], client, user, str(item))
    for session, client in database.execute(_CROSSED):
        text = f"row {session} of session: the index has another client for this row"
        yield _ended(session, client, known[session][1], text)


def _twins(database: sqlite3.Connection) -> Iterator[Missing]:
    """Yield a finding for each row that differs from its copy (`twins.py`), and each copy without a
    row.
    """
    known = {row[0]: row[1:] for row in database.execute("SELECT id, client, user FROM session")}
    newest, landed = database.execute(
        "SELECT max(number), max(iif(landed IS NULL, 0, number)) FROM batch"
    ).fetchone()
    for table in set(ENDING).intersection(twins.TABLES):
        for item in twins.changed(database, table):
            if item.number in known:
                client, user = known[item.number]
                yield _ended(item.number, client, user, str(item))
            elif table == "session":
                yield Missing(f"session of {name(item.cells.rsplit(' ', 4)[0])}: {item}")
    for item in twins.changed(database, "given"):
        yield Missing(
            f"session of {_name_of(item.row)}, which has moved to another gateway: {item}", "given"
        )
    for item in twins.changed(database, "place"):
        yield Missing(str(item), "other" if item.is_missing else "refused")
    for item in twins.changed(database, "batch"):
        # an earlier batch has landed, and only people ask for its content
        needed = item.number >= min(newest or 0, (landed or 0) + 1)
        yield Missing(str(item), "refused" if needed else "other")


def _ended(session: int, client: str, user: str | None, text: str) -> Missing:
    kind: Kind = "anew" if user == INSIDE else "session"
    return Missing(f"session of {name(client)}: {text}", kind, session)


_KINDS: dict[str, Kind] = {
    "place": "refused",
    "batch": "refused",
    "batch_content": "other",
    "given": "given",
    "given_part": "given",
}


def broken_session_references(database: sqlite3.Connection) -> list[Missing]:
    """Return findings about the queues and packet identifiers of sessions. Sessions that the next
    start ends anyway are left out.
    """
    noted = _with_flows(database)
    found = [
        (session, _words(problem, entries, int(count)))
        for session, problem, entries, count in database.execute(_MESSAGES)
    ]
    found += [
        # a gap longer than the queue means a wrong number
        (session, f"{are(int(gap))} gone from its queue" if 0 < gap <= rows else _DAMAGED)
        for session, gap, rows in database.execute(_PLACES, (noted,))
    ]
    found += _in_flight(database)
    query = "SELECT id FROM session WHERE id <= ? AND id NOT IN (SELECT session FROM flow)"
    found += [
        (session, "its packet identifiers are gone")
        for (session,) in database.execute(query, (noted,))
    ]
    if not found:
        return []
    query = "SELECT id, client, user, expiry FROM session"
    known = {row[0]: row[1:] for row in database.execute(query)}
    missing = []
    for session, text in found:
        if session not in known:
            missing.append(Missing(f"a session that has ended (number {session}): {text}"))
            continue
        client, user, expiry = known[session]
        if not expiry:
            continue
        kind: Kind = "own" if user == INSIDE else "session"
        missing.append(Missing(f"session of {name(client)}: {text}", kind, session))
    return missing


def _words(problem: str, entries: int, count: int) -> str:
    if problem == "gone":
        return f"the content of {amount(count, 'message')} of its queue is gone"
    if problem == "length":
        verb = "has" if count == 1 else "have"
        return f"{amount(count, 'message')} of its queue {verb} a wrong length"
    return _DAMAGED if entries == 1 else f"{entries:,} entries of its queue are damaged"


def _in_flight(database: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Yield (session, text) for each fault of a session. There are two faults. Messages are in
    flight, but have no row of `queue`. Or rows of `queue` were sent, but are neither in flight nor
    acknowledged; this fault is only looked for after `sweep`.
    """
    swept = _are_swept(database)
    for session, following, flying, released, entries in _begun(database):
        missing = set(flying)
        for first, count in entries:
            missing -= _identifiers(first, count, following)
        if missing:
            yield session, f"{amount(len(missing), 'message')} in flight, but gone from the store"
        if swept and (idle := _idle(following, flying | released, entries)):
            amount_idle = amount(len(idle), "entry", "entries")
            yield session, f"its queue has {amount_idle} neither in flight nor to be sent"


def _begun(
    database: sqlite3.Connection,
) -> Iterator[tuple[int, int, set[int], set[int], list[tuple[int, int]]]]:
    """Yield each session that has messages in flight, or queue entries before the next message to
    send. Each item: the session's number, the number of the next message to send, the packet
    identifiers in flight, the released packet identifiers, and (first, count) of these queue
    entries.
    """
    for session, following, sent, released in database.execute(
        f"SELECT session, next, sent, released FROM flow WHERE {_FLOW} AND (length(sent) > 0 OR"  # noqa: S608
        " EXISTS (SELECT 1 FROM queue WHERE queue.session = flow.session AND first < next))"
        " AND session IN (SELECT id FROM session)"
    ).fetchall():
        entries = database.execute(
            f"SELECT first, count FROM queue WHERE session = ? AND first < ? AND {PLAUSIBLE}",  # noqa: S608
            (session, following),
        ).fetchall()
        yield session, following, set(unpack_ids(sent)), set(unpack_ids(released)), entries


def _identifiers(first: int, count: int, following: int) -> set[int]:
    """Return the packet identifiers of those messages in a queue entry that were sent. first:
    number of the entry's first message. count: number of its messages. following: number of the
    next message to send.
    """
    end = min(first + count, following, first + IDENTIFIERS)
    return {packet_id(number) for number in range(first, end)}


def _idle(following: int, needed: set[int], entries: list[tuple[int, int]]) -> list[int]:
    """Return the queue entries that were sent completely, and use no packet identifier in `needed`.
    Each entry is named by the number of its first message. following: number of the next message to
    send. entries: (first, count) of each entry.
    """
    return [
        first
        for first, count in entries
        if first + count <= following and not needed & _identifiers(first, count, following)
    ]


def _are_swept(database: sqlite3.Connection) -> bool:
    query = "SELECT value FROM meta WHERE key IN (?, 'boot') ORDER BY key = 'boot'"
    found = [value for (value,) in database.execute(query, (SWEPT,))]
    return len(found) == 2 and found[0] == found[1]


def sweep(database: sqlite3.Connection) -> None:
    """Delete the queue entries of acknowledged messages, which an older version may have kept, and
    record that no such entry remains.
    """
    for session, following, flying, _, entries in _begun(database):
        database.executemany(
            "DELETE FROM queue WHERE session = ? AND first = ?",
            [(session, first) for first in _idle(following, flying, entries)],
        )
    database.execute(
        "INSERT OR REPLACE INTO meta SELECT ?, value FROM meta WHERE key = 'boot'", (SWEPT,)
    )


def _with_flows(database: sqlite3.Connection) -> int:
    """Return the number up to which each session must have a row in `flow`; 0 if not known."""
    query = "SELECT key, value FROM meta WHERE key IN (?, 'boot')"
    found = dict(database.execute(query, (FLOWS,)).fetchall())
    start, _, highest = found.get(FLOWS, "").partition(" ")
    if not highest or start != found.get("boot"):
        return 0
    # a row without a session: the session may exist under another number
    alone = database.execute(f"SELECT 1 FROM flow WHERE {_STRAY} LIMIT 1").fetchone()  # noqa: S608
    return int(highest) if alone is None else _HIGHEST


def note_flows(database: sqlite3.Connection) -> None:
    """Record in `meta` that each session up to the present highest id has a row in `flow`, with the
    number of this start.
    """
    database.execute(
        "INSERT OR REPLACE INTO meta SELECT ?, (SELECT value FROM meta WHERE key = 'boot') || ' '"
        " || (SELECT coalesce(max(id), 0) FROM session)",
        (FLOWS,),
    )


def strays(database: sqlite3.Connection) -> list[Missing]:
    """Return a finding for each deleted session that still has rows. Messages of shared
    subscriptions do not count, because they wait for other subscribers.
    """
    found: dict[int, list[str]] = {}
    for table in _OF_SESSIONS:
        shared = " AND share = ''" if table == "queue" else ""
        for session, count in database.execute(
            f"SELECT session, count(*) FROM {table} WHERE {_STRAY}{shared} GROUP BY session"  # noqa: S608
        ):
            found.setdefault(session, []).append(f"{amount(count, 'row')} in {table}")
    return [
        Missing(f"session {session} was deleted, but still has {', '.join(rows)}", "stray", session)
        for session, rows in found.items()
    ]


def _forwarders(database: sqlite3.Connection) -> Iterator[Missing]:
    """Yield forwarders for which no member is recorded as the holder of their session; a start ends
    them. Also yield sessions with a `journey` row for forwarders, and forwarders with a `journey`
    row for sessions.
    """
    for (session,) in database.execute(
        f"SELECT id FROM session WHERE {_IS_FORWARDER} AND expiry > 0"  # noqa: S608 - a text of ours
        " AND id NOT IN (SELECT session FROM journey)"
    ):
        yield Missing(
            f"session {session}, the forwarder of a session that has moved: the member that has it"
            " now is not recorded, so the messages of the forwarder are lost"
        )
    query = f"SELECT id, client, user FROM session JOIN {_KEYS} ON session = id WHERE {_MISTAKEN}"  # noqa: S608
    for session, client, user in database.execute(query).fetchall():
        yield _ended(
            session,
            client,
            user,
            f"row {session} of journey: its key is invalid",  # prose: the name of the table
        )


def missing_parts(database: sqlite3.Connection) -> list[tuple[str, Missing]]:
    """Return the keys of exported sessions that lack a row of `given` or `given_part`, each with
    its finding.
    """
    incomplete = database.execute(
        "SELECT key, member, parts - (SELECT count(*) FROM given_part WHERE"
        " given_part.key = given.key AND part BETWEEN 0 AND given.parts - 1) AS gone"
        " FROM given WHERE gone <> 0"
    )
    alone = database.execute(
        "SELECT key, count(*) FROM given_part WHERE key NOT IN (SELECT key FROM given) GROUP BY key"
    )
    found = [
        (key, f"{are(count, 'part')} missing, for {printable(member)}")
        for key, member, count in incomplete.fetchall()
    ]
    found += [
        (key, f"{amount(count, 'part')} of it without a row in the table given")
        for key, count in alone.fetchall()
    ]
    return [
        (
            key,
            Missing(
                f"session of {_name_of(key)}, which has moved to another gateway: {problem}",
                "given",
            ),
        )
        for key, problem in found
    ]


def _batches(database: sqlite3.Connection) -> Iterator[Missing]:
    for (number,) in database.execute(
        "SELECT number FROM batch WHERE number NOT IN (SELECT number FROM batch_content)"
    ):
        yield Missing(
            f"batch {number}: the list of its readings is gone, so"
            " `onceway where` does not find them"
        )
    for (number,) in database.execute(
        "SELECT number FROM batch_content WHERE number NOT IN (SELECT number FROM batch)"
    ):
        yield Missing(f"the row of batch {number} is gone; only the list of its readings is left")
    for number, rows, present in database.execute(
        "SELECT number, rows, (SELECT count(*) FROM spool WHERE id BETWEEN first AND last) AS there"
        " FROM batch WHERE landed IS NULL AND rows <> there"
    ):
        yield Missing(
            f"batch {number} of {amount(rows, 'row')}, which has not landed:"
            f" {are(rows - present, 'row')} gone from the spool"
        )


def spool_holes(database: sqlite3.Connection, after: int | None = None) -> list[tuple[int, int]]:
    """Return the first and last id of each gap in the ids of the spool's rows, from `after` to the
    newest row. Gaps in `GONE` are left out, and so is a gap that ends at the id in `spool.last`:
    its ids were skipped. after: an id, or None for the last row that is in a batch.
    """
    (cut, last), known = (
        database.execute(
            "SELECT coalesce((SELECT last FROM batch ORDER BY number DESC LIMIT 1), 0),"
            " coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'spool.last'), 0)"
        ).fetchone(),
        database.execute("SELECT value FROM meta WHERE key = ?", (GONE,)).fetchone(),
    )
    holes_known = json.loads(known[0]) if known else []
    begin = cut if after is None else after
    holes = database.execute(
        "SELECT before + 1, id - 1 FROM (SELECT id,"
        " lag(id, 1, CASE WHEN ?1 THEN ?1 ELSE id - 1 END) OVER (ORDER BY id) AS before"
        " FROM spool WHERE id > ?1) WHERE id > before + 1",
        (begin,),
    )
    # the ids of a hole that ends at `spool.last` were skipped after a discard or a salvage
    return [
        (first, end)
        for first, end in holes.fetchall()
        if end != last and not any(low <= first and end <= high for low, high in holes_known)
    ]


def words(hole: tuple[int, int]) -> str:
    """Return a sentence about a hole in the spool. hole: first and last missing id."""
    first, end = hole
    if first == end:
        return f"row {first} of the spool is gone: a reading that was acknowledged does not land"
    return (
        f"rows {first} to {end} of the spool are gone: {end - first + 1:,} readings that were"
        " acknowledged do not land"
    )


_NEWEST = f"""
SELECT last + 1, checked FROM (SELECT
    max(coalesce((SELECT max(id) FROM spool), 0),
        coalesce((SELECT last FROM batch ORDER BY number DESC LIMIT 1), 0),
        coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'spool.last'), 0)) AS last,
    (SELECT CAST(value AS INTEGER) FROM meta WHERE key = '{CHECKED}') AS checked)
WHERE last < checked AND {OURS}
"""  # noqa: S608 - texts of ours
"""SQL query: first and last id of the rows that are missing at the end of the spool. The last id is
the newest one that got a check. No result if none is missing.
"""


def _spool(database: sqlite3.Connection) -> Iterator[Missing]:
    for hole in spool_holes(database):
        yield Missing(words(hole))
    for lost in database.execute(_NEWEST).fetchall():
        yield Missing(words(lost))


def _meta(database: sqlite3.Connection) -> Iterator[Missing]:
    for key, problem in meta.damage(database).items():
        yield Missing(problem, "other" if key.startswith(meta.UPLINK) else "refused")
    for item in twins.changed(database, "meta"):
        if item.key not in meta.NEEDED and not item.key.startswith(meta.UPLINK):
            yield Missing(str(item))


def name(client: object) -> str:
    """Return a client identifier for a log line. client: any value, because the cell may be
    damaged.
    """
    return (printable(client) if isinstance(client, str) else "") or "a client without a name"


def _name_of(key: object) -> str:
    return name(name_of(key) if isinstance(key, str) else key)


_Look = Callable[[sqlite3.Connection], "list[Missing] | Iterator[Missing]"]
_LOOKS: tuple[tuple[frozenset[str], _Look], ...] = (
    (frozenset({"session"}), _cells),
    (frozenset({"session", "batch", "twin"}), _twins),
    (frozenset({"session", "flow", "queue", "message"}), broken_session_references),
    (frozenset(_OF_SESSIONS), strays),
    (frozenset({"journey"}), _forwarders),
    (
        frozenset({"given", "given_part"}),
        lambda database: [item for _, item in missing_parts(database)],
    ),
    (frozenset({"batch", "batch_content", "spool"}), _batches),
    (frozenset({"spool", "batch"}), _spool),
    (frozenset({"meta"}), _meta),
)
