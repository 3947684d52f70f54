"""One `Commit` of the broker as one transaction.

In: a commit with its rows. Out: the same rows on disk when `apply` returns (WAL, synchronous=FULL).
One statement inserts many rows. Python's sqlite3 releases the interpreter lock at each statement,
so with a statement per row the event loop and the writer would delay each other.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from time import perf_counter
from typing import Any

from gateway.broker.store_rows import Commit
from gateway.store import row_checks
from gateway.store.move_in import take
from gateway.store.move_out import delete_parts, give
from gateway.store.move_rows import Moves
from gateway.store.row_checks import SpoolChecks
from gateway.store.uptime import save_axis

_STEP, _LARGEST = 16, 128
"""Numbers of rows in one INSERT statement: a multiple of `_STEP`, at most `_LARGEST`. If fewer than
`_STEP` rows remain, one statement inserts all of them. So two statements are enough for up to 143
rows, and SQLite prepares few different statements.
"""
_FEW = 4
"""Largest number of key ranges that are deleted one by one. If there are more, one statement with a
JSON list of all keys is faster.
"""

_OF_A_SESSION = (
    "session WHERE id",
    "subscription WHERE session",
    "flow WHERE session",
    "queue WHERE share = '' AND session",
)
_COLUMNS = {
    "spool": 10,
    "session": 6,
    "subscription": 4,
    "flow": 5,
    "message": 7,
    "queue": 9,
    "retained": 7,
    "will": 9,
    "mark": 6,
    "aside": 10,
    "origin": 4,
    "copy": 10,  # in another database (copies.py)
}


@cache
def _insert(table: str, rows: int) -> str:
    """Return a statement that inserts or replaces this number of rows."""
    row = f"({','.join('?' * _COLUMNS[table])})"
    return f"INSERT OR REPLACE INTO {table} VALUES {','.join([row] * rows)}"  # noqa: S608 - names from this file


def put(database: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    at = 0
    while remaining := len(rows) - at:
        chunk = min(remaining // _STEP * _STEP, _LARGEST) or remaining
        database.execute(_insert(table, chunk), tuple(chain.from_iterable(rows[at : at + chunk])))
        at += chunk


_LISTED = "IN (SELECT value FROM json_each(?))"
_LISTED_TEXTS = "IN (SELECT CAST(value AS TEXT) FROM json_each(?))"
_PAIRS = "IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))"


def _put_all(database: sqlite3.Connection, commit: Commit) -> None:
    messages, queue = commit.messages, commit.queue
    if queue:
        messages, queue = row_checks.with_checks(database, messages, queue)
    tables: tuple[tuple[str, Sequence[tuple[Any, ...]]], ...] = (
        ("session", commit.sessions),
        ("subscription", commit.subscriptions),
        ("message", messages),
        ("queue", queue),
        ("flow", commit.flows),
        ("spool", commit.spool),
        ("retained", commit.retained),
        ("will", commit.wills),
        ("mark", [row_checks.sealed(mark) for mark in commit.marks]),
        ("aside", commit.aside),
        ("origin", commit.origins),
    )
    for table, rows in tables:
        if rows:
            put(database, table, rows)
            if table in row_checks.COLUMNS:
                row_checks.put_checks(database, table, rows)


def _deleted_keys(commit: Commit) -> Iterable[tuple[str, Sequence[Any]]]:
    """Return the deletions of a commit as pairs for `_delete_all`: a table with a condition as SQL,
    and the keys that become the condition's parameter.
    """
    return (
        (f"subscription WHERE (session, filter) {_PAIRS}", commit.unsubscribed),
        (row_checks.NUMBERED, commit.dead),
        (f"retained WHERE topic {_LISTED}", commit.cleared),
        (f"content_check WHERE kind = 'retained' AND key {_LISTED}", commit.cleared),
        (f"will WHERE client {_LISTED}", commit.wills_done),
        (f"content_check WHERE kind = 'will' AND key {_LISTED}", commit.wills_done),
        (f"aside WHERE id {_LISTED}", commit.aside_gone),
        (f"content_check WHERE kind = 'aside' AND key {_LISTED_TEXTS}", commit.aside_gone),
        (f"origin WHERE (kind, key) {_PAIRS}", commit.origins_gone),
    )


def _delete_all(database: sqlite3.Connection, deleted: Iterable[tuple[str, Sequence[Any]]]) -> None:
    """Delete rows. deleted: pairs of SQL text and keys. The SQL names a table and a condition with
    one parameter: the keys as a JSON list.
    """
    for which, keys in deleted:
        if keys:
            database.execute(f"DELETE FROM {which}", (json.dumps(keys),))  # noqa: S608 - from this file


def _delete_queued(database: sqlite3.Connection, keys: Sequence[tuple[int, int]]) -> None:
    """Delete rows of `queue`. keys: session and first number of each row. Acknowledged messages are
    consecutive in a queue, so a statement for a range of keys is faster than one for a list.
    """
    ranges: list[tuple[int, int, int]] = []
    for session, first in sorted(keys):
        if ranges and ranges[-1][0] == session and ranges[-1][2] == first - 1:
            ranges[-1] = session, ranges[-1][1], first
        else:
            ranges.append((session, first, first))
    if len(ranges) <= _FEW:
        database.executemany(
            "DELETE FROM queue WHERE session = ? AND first BETWEEN ? AND ?", ranges
        )
    else:
        _delete_all(database, [(f"queue WHERE (session, first) {_PAIRS}", keys)])


def _move(database: sqlite3.Connection, moves: Moves) -> None:
    """Apply changes that concern the other gateways of the site. Call this when all other rows of
    the commit are written.
    """
    many = database.executemany
    many("INSERT OR REPLACE INTO journey VALUES (?,?,?,?,?,?,?,?,?,?)", moves.moving_sessions)
    many("DELETE FROM journey WHERE session = ?", [(session,) for session in moves.arrived])
    for order in moves.exports:
        give(database, order)
    for wanted in moves.imports:
        take(database, wanted)
    failed = {wanted.key for wanted in moves.imports if wanted.wrong}
    many("UPDATE given SET member = ? WHERE key = ?", moves.redirected)
    forgotten = [(key,) for key in moves.forgotten if key not in failed]
    if forgotten:
        delete_parts(database, forgotten)
    many("DELETE FROM given WHERE key = ?", forgotten)
    for key, row in moves.places.items():
        if row is None:
            database.execute("DELETE FROM place WHERE key = ?", (key,))
        elif key not in failed:
            database.execute("INSERT OR REPLACE INTO place VALUES (?, ?, ?, ?)", row)
    if moves.members is not None:
        names = json.dumps(sorted(moves.members))
        database.execute("INSERT OR REPLACE INTO meta VALUES ('members', ?)", (names,))
    if moves.trusted:
        database.execute("DELETE FROM meta WHERE key = 'mistrusted'")


def apply(database: sqlite3.Connection, commit: Commit, checks: SpoolChecks | None = None) -> float:
    """Write a commit. Return the seconds that COMMIT took, including the wait for fsync. If an
    error is raised, such as sqlite3.Error, no part of the commit is in the database. checks:
    collects the checks of spool rows, to write them with a later commit; None: the checks are
    written with this commit.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        if commit.ended:
            _delete_all(database, [(f"{which} {_LISTED}", commit.ended) for which in _OF_A_SESSION])
        if commit.trimmed:
            database.executemany(
                "DELETE FROM queue WHERE session = ? AND first <= ?", commit.trimmed
            )
        _put_all(database, commit)
        if commit.finished:
            _delete_queued(database, commit.finished)
        _delete_all(database, _deleted_keys(commit))
        if isinstance(commit.neighbours, Moves):
            _move(database, commit.neighbours)
        checks = checks or SpoolChecks(each=1)
        pending = checks.pending
        if commit.spool or commit.clock is not None:
            pending = checks.put(database, commit.spool, commit.clock, commit.boot)
        if commit.axis is not None:
            save_axis(database, *commit.axis)
        begin = perf_counter()
        database.execute("COMMIT")
        checks.pending = pending
        return perf_counter() - begin
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
