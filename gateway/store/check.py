"""Check of a store: SQLite's own rules, and the rules between rows of different tables.

In: a data directory. Out: findings, in words. A changed payload is found by its check
(`row_checks.py`). In cells without a check, a change that breaks no rule is not found.
"""

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gateway.config import MEMBER
from gateway.store import cells, wal
from gateway.store.cells import broken, sound, teach
from gateway.store.queue_reads import SIZE
from gateway.store.references import missing
from gateway.store.schema import (
    SCHEMA_VERSION,
    StoreError,
    closed_to_us,
    connect_to_read,
    existing,
    salvaged,
)
from gateway.system.causes import DAMAGED, UNKNOWN, cause

_MOST_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a table. broken: SQL condition for rows of `table` that break the rule. text:
    description of such a row, for findings.
    """

    table: str
    broken: str
    text: str


_NO_SESSION = "session NOT IN (SELECT id FROM session)"

RULES = (
    Rule(
        "message",
        "length(body) % max(count, 1)",
        "a message whose length differs from its length field",
    ),
    Rule("subscription", _NO_SESSION, "a subscription without a session"),
    Rule("flow", _NO_SESSION, "a row of the table `flow` without a session"),
    Rule("journey", _NO_SESSION, "a session move without a session"),
    Rule("queue", f"{_NO_SESSION} AND share = ''", "a queue entry without a session"),
    Rule(
        "queue",
        "message NOT IN (SELECT id FROM message)",
        "a queue entry whose message is gone",
    ),
    Rule(
        "queue",
        "EXISTS (SELECT 1 FROM message WHERE id = queue.message AND"  # noqa: S608 - a text of ours
        f" (skip + queue.count > message.count OR NOT ({SIZE})))",
        "an impossible queue entry",
    ),
    Rule(
        "queue",
        "EXISTS (SELECT 1 FROM queue AS other WHERE other.session = queue.session AND other.first >"
        " queue.first AND other.first < queue.first + queue.count)",
        "a queue entry that overlaps the next one",
    ),
    Rule(
        "mark",
        f"highest > 4294967295 AND device NOT LIKE '{MEMBER}%'",
        "an invalid anti-replay window of a board",
    ),
    Rule(
        "given",
        "parts <> (SELECT count(*) FROM given_part WHERE"
        " given_part.key = given.key AND part BETWEEN 0 AND given.parts - 1)",
        "a moved session without all its parts",
    ),
    Rule(
        "given_part",
        "key NOT IN (SELECT key FROM given)",
        "a part of a moved session without its row in the table `given`",
    ),
)
"""Rules between rows. A salvage deletes the rows that break a rule. It takes the rules in this
order, because a deletion can make other rows break a later rule.
"""

CELLS = tuple(
    Rule(table, f"({sound(table)}) IS NOT TRUE", f"an invalid row of {table}")
    for table in cells.CELLS
)
"""Rules for rows with an impossible value in a cell."""

LEFT_BEHIND = Rule("queue", _NO_SESSION, "a queue entry without a session")
"""Rule for queue entries of ended sessions, also for entries from shared subscriptions. Only a
salvage applies this rule. In a sound store, entries from shared subscriptions wait for other
subscribers. In a store that has lost sessions, the messages may have been delivered already.
"""


def check(folder: Path) -> list[str]:
    """Return the findings for the store in a folder; empty if the store is sound. Raises
    StoreClosed if this account may not read the store. Raises StoreError if the folder has no
    store, or if the store cannot be read for another reason than damage.
    """
    if salvaged(folder):
        return ["a salvage was interrupted: run it again"]
    path = existing(folder)
    if orphaned := wal.orphaned(path):
        return [orphaned]
    try:
        with closing(connect_to_read(path)) as database:
            found = [
                row[0]
                for row in database.execute(f"PRAGMA integrity_check({_MOST_FINDINGS})")
                if row[0] != "ok"
            ]
            version = database.execute("PRAGMA user_version").fetchone()[0]
            log = wal.damage(path)
            if not found and not 0 < version <= SCHEMA_VERSION:
                found = [f"schema {version} is not known here"]
            elif not found:
                found = _broken_rules(database)
    except sqlite3.DatabaseError as error:
        if (closed := closed_to_us(path, error)) is not None:
            raise closed from error
        reason, todo = cause(error, folder)
        if reason not in (DAMAGED.reason, UNKNOWN.reason):
            raise StoreError(
                f"the store cannot be read: {reason} ({error})", str(path), todo
            ) from error
        return [str(error)]
    return [log, *found] if log else found


def _broken_rules(database: sqlite3.Connection) -> list[str]:
    found = damage(database)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    for rule in RULES:
        if rule.table not in tables:  # an older version lacks the table
            continue
        (count,) = database.execute(
            f"SELECT count(*) FROM {rule.table} WHERE {rule.broken}"  # noqa: S608
        ).fetchone()
        found += [f"{rule.text}: {count}"] if count else []
    return found + [str(item) for item in missing(database, frozenset(tables))]


def named(database: sqlite3.Connection, error: Exception) -> Exception:
    """Return an error that names a damaged row of the store, if there is one; else return `error`,
    with which a start failed. Errors for which SQLite has a code of their own, such as disk errors,
    are returned unchanged.
    """
    if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) != sqlite3.SQLITE_ERROR:
        return error
    with suppress(sqlite3.Error):
        for found in damage(database):
            return ValueError(found)
    return error


def damage(database: sqlite3.Connection) -> list[str]:
    """Return findings about damaged cells in the tables that a start does not check cell by cell:
    `queue`, `message` and `spool`.
    """
    teach(database)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    return [
        str(item)
        for table in ("queue", "message", "spool")
        if table in tables
        for item in islice(broken(database, table), _MOST_FINDINGS)
    ]
