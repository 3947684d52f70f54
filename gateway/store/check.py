"""Whether a store is sound: SQLite's own rules, and what has to hold between our rows.

In: a data directory. Out: findings, in words. What no rule binds (a changed bit inside a payload or
a number) cannot be seen.
"""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gateway.broker.marks import PLACES
from gateway.config import MEMBER
from gateway.store import wal
from gateway.store.move_rows import LINEAGES, MOST_MOVES
from gateway.store.references import missing
from gateway.store.schema import SCHEMA_VERSION, StoreError, connect_to_read, existing, salvaged

_MOST_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class Rule:
    """broken: an SQL condition that no row of `table` may meet. what: what a row is that meets
    it.
    """

    table: str
    broken: str
    what: str


def _no_names(column: str) -> str:
    """Broken: what is no list of names in JSON."""
    return (
        f"CASE WHEN json_valid({column}) THEN json_type({column}) <> 'array' OR EXISTS"  # noqa: S608
        f" (SELECT 1 FROM json_each({column}) WHERE type <> 'text') ELSE 1 END"
    )


_NO_SESSION = "session NOT IN (SELECT id FROM session)"

_SIZE = (
    "size NOT BETWEEN length(body) / message.count AND length(body) / message.count"
    " + length(properties) + length(CAST(topic AS BLOB)) + 2"
)
"""SQL: `queue.size` fits no message of this content. Properties count, and a long topic
(`PublishRun.weight`).
"""

RULES = (
    Rule("session", "expiry NOT BETWEEN 0 AND 4294967295 OR left < 0", "a session that cannot be"),
    Rule(
        "message",
        "count < 1 OR length(body) % max(count, 1)",
        "a message that is not as long as it says",
    ),
    Rule("subscription", _NO_SESSION, "a subscription without a session"),
    Rule("flow", _NO_SESSION, "a flow without a session"),
    Rule(
        "flow",
        "next < 1 OR length(received) % 2 OR length(sent) % 2 OR length(released) % 2",
        "a flow that cannot be",
    ),
    Rule("queue", f"{_NO_SESSION} AND share = ''", "a place in a queue without a session"),
    Rule(
        "queue",
        "message NOT IN (SELECT id FROM message)",
        "a place in a queue whose message is gone",
    ),
    Rule(
        "queue",
        "first < 1 OR count < 1 OR skip < 0 OR flags NOT BETWEEN 2 AND 5 OR EXISTS (SELECT 1 FROM"  # noqa: S608
        f" message WHERE id = queue.message AND (skip + queue.count > message.count OR {_SIZE}))",
        "a place in a queue that cannot be",
    ),
    Rule(
        "queue",
        "EXISTS (SELECT 1 FROM queue AS other WHERE other.session = queue.session AND other.first >"
        " queue.first AND other.first < queue.first + queue.count)",
        "a place in a queue that reaches into the next",
    ),
    Rule(
        "mark",
        f"place NOT BETWEEN 0 AND {PLACES - 1} OR incarnation NOT BETWEEN 1 AND 4294967295"
        f" OR highest < 0 OR highest > 4294967295 AND device NOT LIKE '{MEMBER}%'"
        " OR length(kept) % 2",
        "a mark of a board that cannot be",
    ),
    Rule(
        "place",
        "epoch < 0 OR doubtful NOT IN (0, 1, 2) OR " + _no_names("older"),
        "a place of a session that cannot be",
    ),
    Rule(
        "given",
        "messages < 0 OR ends < 0 OR parts <> (SELECT count(*) FROM given_part WHERE"
        " given_part.key = given.key AND part BETWEEN 0 AND given.parts - 1)",
        "a session that has left without all its parts",
    ),
    Rule("given_part", "key NOT IN (SELECT key FROM given)", "a part of a session that is gone"),
    Rule(
        "journey",
        f"{_NO_SESSION} OR lineage NOT BETWEEN 1 AND {LINEAGES - 1}"
        f" OR moves NOT BETWEEN 0 AND {MOST_MOVES - 1}"
        + "".join(f" OR {_no_names(it)}" for it in ("closed", "tails", "filters", "done")),
        "a journey of a session that cannot be",
    ),
    Rule(
        "aside",
        "id < 1 OR qos NOT BETWEEN 0 AND 2 OR retain NOT IN (0, 1)",
        "a message that is set aside and cannot be",
    ),
    Rule(
        "spool",
        "id < 1",
        "a row of the spool with a number that was never given",
    ),
)
"""In an order in which what one of them takes away shows in the next."""

LEFT_BEHIND = Rule("queue", _NO_SESSION, "a place in a queue without a session")
"""What came from shared subscriptions and waits for other members, since its session has ended. In
a store that has lost sessions it cannot be told from what their clients have already.
"""


def check(folder: Path) -> list[str]:
    """What is wrong with the store in a folder; empty when nothing is. StoreError when there is
    none, or this account may not look.
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
        if not (os.access(path, os.R_OK) and os.access(folder, os.W_OK)):
            hint = "SQLite's log needs the right to write, even for reading"
            raise StoreError(
                f"this account may not look at the store ({error})", str(path), hint
            ) from error
        return [str(error)]
    return [log, *found] if log else found


def _broken_rules(database: sqlite3.Connection) -> list[str]:
    found = []
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    for rule in RULES:
        if rule.table not in tables:  # in a store of an older version
            continue
        (count,) = database.execute(
            f"SELECT count(*) FROM {rule.table} WHERE {rule.broken}"  # noqa: S608
        ).fetchone()
        found += [f"{rule.what}: {count}"] if count else []
    return found + [str(item) for item in missing(database, frozenset(tables))]
