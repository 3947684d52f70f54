"""Recovery of the broker's state from the tables at a start.

In: an open store. Out: `Recovered`. Leftovers of a power cut are deleted here: messages that no
queue refers to. If a session lacks a row (`references.py`), the session ends, and its client sees
Session Present 0. Rows of deleted sessions are deleted, except for messages from shared
subscriptions that other subscribers must still get. The log names each finding.

The time axis continues from the newest time in the store. The time while the gateway was off counts
if the machine stayed up (`uptime.py`), or if the clock was known before and after.
"""

import json
import logging
import sqlite3

from gateway.broker.spool import PART
from gateway.broker.store_rows import Recovered
from gateway.store import row_checks, run_marks, twins
from gateway.store.cells import HIGHEST, sound, teach
from gateway.store.generation import settle
from gateway.store.missing_checks import check_messages, settle_contents
from gateway.store.move_rows import Moved
from gateway.store.queue_reads import DELIVERY, UNSOUND
from gateway.store.references import (
    ALONE,
    ENDING,
    Missing,
    missing,
    missing_parts,
    note_flows,
    sweep,
)
from gateway.store.row_checks import number_of
from gateway.store.schema import ASIDE_SIZE, ROW_SIZE
from gateway.store.uptime import Uptime, axis, save_uptime

log = logging.getLogger(__name__)


class Refused(ValueError):
    """Error: a row of the store makes the start impossible."""


_MOST_LINES = 20
"""Largest number of log lines about missing rows at one start."""

# The start of each queue's tail: after the messages that were sent, or may have been sent if the
# gateway died while the client was connected.
_BORDER = """
    WITH border AS MATERIALIZED (
        SELECT id, coalesce(next, 1) + iif(left IS NULL, ?, 0) AS number
            FROM session LEFT JOIN flow ON flow.session = id)
"""


def recover(
    database: sqlite3.Connection,
    utc: int | None,
    inflight: int,
    uptime: Uptime | None = None,
    forget: bool = False,
    by_user: bool = False,
) -> Recovered:
    """Recover all state except the tails of the queues. Raises Refused. utc: µs since 1970, None
    while the clock is not known. inflight: largest number of messages that one client can have had
    in flight. uptime: the machine's uptime, None if not known. forget: whether this is another
    store generation (`generation.py`). by_user: whether to read how many bytes of the spool each
    user has.
    """
    with database:
        database.execute("BEGIN IMMEDIATE")
        found = missing(database)
        for item in found:
            if item.kind == "refused":
                raise Refused(str(item))
        now = axis(database, utc, uptime)
        if forget and not run_marks.was_stopped(database):
            run_marks.skip_ahead(database)
        checked = database.execute(f"SELECT {row_checks.OURS}").fetchone()[0]
        boot = _count_start(database)
        if checked:
            row_checks.note_start(database, boot)
        run_marks.begin(database, boot)
        if uptime is not None:
            save_uptime(database, now, uptime)
        if forget:
            database.execute("UPDATE flow SET received = x''")
            database.execute("DELETE FROM mark")
            database.execute("UPDATE session SET expiry = 0 WHERE incarnation <> 0")
            database.execute("INSERT OR REPLACE INTO meta VALUES ('mistrusted', '1')")
        settle(database)
        row_checks.add_missing(database, checked)
        _leave_out(database, found)
        _give_each_session_flows(database)
        sweep(database)
        leaving = _drop_strays(database)
        references = _references(database)
        settle_contents(database, checked)
        if not checked:
            check_messages(database)
            references = _references(database)
            row_checks.note_start(database, boot)
        if found:
            twins.fill(database)
    rows = database.execute
    _refuse_numbers(database)
    return Recovered(
        boot=boot,
        now=now,
        next_session=rows(
            "SELECT coalesce(max(id), 0) + 1 FROM (SELECT max(id) AS id FROM session UNION ALL"
            " SELECT max(session) FROM queue)"
        ).fetchone()[0],
        next_message=rows(
            f"SELECT coalesce(max({number_of('id')}), 0) + 1 FROM message"  # noqa: S608
        ).fetchone()[0],
        next_spool=rows("SELECT id + 1 FROM spool_last").fetchone()[0],
        spool=rows(
            f"SELECT max(id), sum({ROW_SIZE}) FROM spool GROUP BY id / ? ORDER BY 1",  # noqa: S608 - names of ours
            (PART,),
        ).fetchall(),
        lowest_spool=rows("SELECT min(id) FROM spool").fetchone()[0],
        spool_users=rows(
            f"SELECT max(spool.id), user, sum({ROW_SIZE}) FROM spool JOIN session USING (client)"  # noqa: S608
            " WHERE session.incarnation = 0 GROUP BY spool.id / ?, user",
            (PART,),
        ).fetchall()
        if by_user
        else [],
        sessions=rows("SELECT * FROM session").fetchall(),
        subscriptions=rows("SELECT * FROM subscription").fetchall(),
        flows=rows("SELECT * FROM flow").fetchall(),
        queue=rows(
            f"{_BORDER} SELECT queue.session, {DELIVERY} FROM border"  # noqa: S608
            " JOIN queue ON queue.session = border.id AND first < number"
            " JOIN message ON message.id = queue.message ORDER BY queue.session, first",
            (inflight,),
        ).fetchall(),
        tails=rows(
            f"{_BORDER} SELECT border.id, min(first), max(first + count),"  # noqa: S608
            " sum(count), sum(count * size) FROM border"
            " JOIN queue ON queue.session = border.id AND first >= number GROUP BY border.id",
            (inflight,),
        ).fetchall(),
        leaving=leaving,
        references=references,
        retained=rows("SELECT * FROM retained").fetchall(),
        wills=rows("SELECT * FROM will").fetchall(),
        marks=[(*mark[:5], row_checks.unsealed(mark[5])) for mark in rows("SELECT * FROM mark")],
        neighbours=Moved(
            rows("SELECT * FROM place").fetchall(),
            rows("SELECT * FROM given").fetchall(),
            rows("SELECT 1 FROM meta WHERE key = 'mistrusted'").fetchone() is not None,
            _members(database),
            rows("SELECT * FROM journey").fetchall(),
        ),
        origins=rows("SELECT * FROM origin").fetchall(),
        aside=rows(f"SELECT id, bridge, {ASIDE_SIZE} FROM aside ORDER BY id").fetchall(),  # noqa: S608
    )


def _refuse_numbers(database: sqlite3.Connection) -> None:
    """Raise Refused if a table has a number that the gateway can never have assigned."""
    for text, query in _NUMBERS.items():
        (highest,) = database.execute(query).fetchone()
        if highest is not None and not 0 <= highest <= HIGHEST:
            raise Refused(f"{text.format(highest)}: this number was never assigned")


_NUMBERS = {
    "row {} of session": "SELECT max(id) FROM session",
    "session {} in the table queue": "SELECT max(session) FROM queue",
    "row {} of message": "SELECT max(id) FROM message",
    "row {} of spool": "SELECT CASE WHEN min(id) < 0 THEN min(id) ELSE max(id) END FROM spool",
    "row {} of spool, the last row of a batch": "SELECT max(last) FROM batch",
    "row {} of aside": "SELECT max(id) FROM aside",
}


def _members(database: sqlite3.Connection) -> frozenset[str] | None:
    found = database.execute("SELECT value FROM meta WHERE key = 'members'").fetchone()
    return frozenset(json.loads(found[0])) if found else None


def _count_start(database: sqlite3.Connection) -> int:
    found = database.execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
    boot = int(found[0]) + 1 if found else 1
    database.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (str(boot),))
    return boot


def _leave_out(database: sqlite3.Connection, found: list[Missing]) -> None:
    """Log the findings. End the sessions that lack a row. Delete damaged rows, and moved sessions
    of which a part is missing.
    """
    for item in found[:_MOST_LINES]:
        log.error("the store is not whole: %s%s", item, _CONSEQUENCE[item.kind])
    if len(found) > _MOST_LINES:
        text = "the store is not whole: %d more things are missing"
        log.error(text, len(found) - _MOST_LINES)
    teach(database)
    if found:
        for table in (*ENDING, *ALONE):  # first: SQLite refuses to update a row with a wrong type
            _delete_unsound(database, table)
        database.execute("REINDEX session")
    database.executemany(
        "UPDATE session SET expiry = 0 WHERE id = ?",
        [(item.session,) for item in found if item.kind in ("session", "anew")],
    )
    if found or database.execute("SELECT 1 FROM session WHERE expiry = 0 LIMIT 1").fetchone():
        database.execute(f"DELETE FROM queue WHERE {UNSOUND}")  # noqa: S608 - a text of ours
    changed = [item.row for item in twins.changed(database, "given")]
    for key in [*changed, *(key for key, _ in missing_parts(database))]:
        database.execute("DELETE FROM given WHERE key = ?", (key,))
        database.execute("DELETE FROM given_part WHERE key = ?", (key,))


def _delete_unsound(database: sqlite3.Connection, table: str) -> None:
    """Delete the rows of a table whose cells have changed since they were stored. SQLite may not
    find a row with a changed key in order to delete it. In that case, the table is emptied, and its
    sound rows are put back.
    """
    unsound = f"FROM {table} WHERE ({sound(table)}) IS NOT TRUE"
    database.execute(f"DELETE {unsound}")
    if database.execute(f"SELECT 1 {unsound} LIMIT 1").fetchone():
        database.execute(
            f"CREATE TEMP TABLE kept AS SELECT * FROM {table} WHERE {sound(table)}"  # noqa: S608
        )
        database.execute(f"DELETE FROM {table}")  # noqa: S608 - without a search
        database.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM kept")  # noqa: S608
        database.execute("DROP TABLE temp.kept")


_CONSEQUENCE = {
    "session": ". The session ends, and its client gets Session Present 0 at its next CONNECT",
    "own": ". The remaining part of the session is used",
    "anew": ". The session ends, and a new one begins",
    "stray": ". These rows are deleted, and the client begins a new session",
    "given": ". The move is given up, and the client begins a new session",
    "row": ". The row is left out",
    "refused": "",
    "other": "",
}


def _give_each_session_flows(database: sqlite3.Connection) -> None:
    """Give each session without a row in `flow` such a row. If a session has no row later, the row
    was lost.
    """
    database.execute(
        "INSERT INTO flow SELECT id, x'', 1, x'', x'' FROM session"
        " WHERE id NOT IN (SELECT session FROM flow)"
    )
    note_flows(database)


def _drop_strays(database: sqlite3.Connection) -> list[int]:
    """Delete the rows that deleted sessions have left, except rows of `queue` from shared
    subscriptions. Return the deleted sessions that have such rows in `queue`.
    """
    stray = "session NOT IN (SELECT id FROM session)"
    database.execute(f"DELETE FROM subscription WHERE {stray}")  # noqa: S608 - names of ours
    database.execute(f"DELETE FROM flow WHERE {stray}")  # noqa: S608
    database.execute(f"DELETE FROM journey WHERE {stray}")  # noqa: S608
    database.execute(f"DELETE FROM queue WHERE {stray} AND share = ''")  # noqa: S608
    database.execute(_STRAY_ORIGINS)
    found = database.execute(f"SELECT DISTINCT session FROM queue WHERE {stray}")  # noqa: S608
    return [row[0] for row in found]


_STRAY_ORIGINS = f"""
    DELETE FROM origin WHERE NOT CASE kind
        WHEN 'session' THEN key IN (SELECT client FROM session WHERE user IS NULL)
        WHEN 'retained' THEN key IN (SELECT topic FROM retained)
        WHEN 'spool' THEN coalesce(CAST(key AS INTEGER) >= (SELECT min(id) / {PART} FROM spool), 0)
        ELSE 0 END
"""  # noqa: S608 - a number of ours


def _references(database: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return (message, number of queue rows) for each message that several queue rows refer to.
    Delete messages without any queue row.
    """
    several = database.execute(
        f"SELECT {number_of('message')}, count(*) FROM queue"  # noqa: S608 - names of ours
        " GROUP BY message HAVING count(*) > 1"
    ).fetchall()
    (queued,) = database.execute("SELECT count(*) FROM queue").fetchone()
    (messages,) = database.execute("SELECT count(*) FROM message").fetchone()
    if messages != queued - sum(count - 1 for _, count in several):
        database.execute("DELETE FROM message WHERE id NOT IN (SELECT message FROM queue)")
    return several
