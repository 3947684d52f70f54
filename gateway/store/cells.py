"""Rules for each cell of the store, and a search for rows that break them.

In: an open store. Out: SQL conditions, and findings with table, row and columns. A page that the
disk has damaged can contain any value of any type: SQLite does not check values when it reads.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gateway.broker.marks import PLACES
from gateway.broker.retained_changes import MOST_VERSION
from gateway.mqtt.errors import MqttError
from gateway.mqtt.properties import SERVER_PUBLISH_PROPERTIES, decode_properties
from gateway.mqtt.topics import topic_filter_problem, topic_name_problem
from gateway.mqtt.wire import Reader, encode_varint
from gateway.store import row_checks
from gateway.store.move_rows import MOST_MOVES, MOVING_IDS

HIGHEST = 1 << 53
"""Highest plausible row number, and highest plausible time in ms or µs."""
MOST = 0xFFFF_FFFF
"""Highest 32-bit number. This is also the largest `count` of a row of `message` or `queue`: its
number of publications.
"""


# SQLite may call a function even if the type condition beside it is false. So a value may have any
# type.
Value = bytes | str | int | float | None
_SHORT = 256
_IDENTIFIERS = re.compile(rb"(?:\x0b[\x80-\xff]{0,3}[\x00-\x7f])*")


def _text(data: Value) -> str | None:
    try:
        return data.decode() if isinstance(data, bytes) else None
    except UnicodeDecodeError:
        return None


def is_text(data: Value) -> bool:
    """Whether these bytes are UTF-8."""
    return _text(data) is not None


def is_topic(data: Value) -> bool:
    """Whether these bytes are a Topic Name."""
    short = isinstance(data, bytes) and len(data) <= _SHORT
    return _is_topic(data) if short else _is_topic.__wrapped__(data)


@lru_cache(4096)  # many messages share a topic
def _is_topic(data: Value) -> bool:
    name = _text(data)
    return name is not None and topic_name_problem(name) is None


def is_filter(data: Value) -> bool:
    """Whether these bytes are a Topic Filter."""
    name = _text(data)
    return name is not None and topic_filter_problem(name) is None


def is_names(data: Value) -> bool:
    """Whether these bytes are a JSON list of texts."""
    try:
        names = json.loads(_text(data) or "")
    except (ValueError, RecursionError):
        return False
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def is_extra(block: Value) -> bool:
    """Whether these bytes are Subscription Identifiers, or the address of a message between two
    gateways (`gateway/site/moving/addresses.py`). An address has the same form, and may have the
    number 0.
    """
    return isinstance(block, bytes) and _IDENTIFIERS.fullmatch(block) is not None


def is_block(block: Value) -> bool:
    """Whether these bytes are properties of a PUBLISH, without the Property Length."""
    if not isinstance(block, bytes) or not block:
        return block == b""
    try:
        reader = Reader(encode_varint(len(block)) + block, "the store")
        decode_properties(reader, SERVER_PUBLISH_PROPERTIES)
    except (MqttError, ValueError):
        return False
    return True


_FUNCTIONS = (is_text, is_topic, is_filter, is_names, is_block, is_extra)


def teach(database: sqlite3.Connection) -> None:
    """Register the functions that the SQL conditions call. A second call on a connection does
    nothing, because SQLite cannot replace a function while a statement runs.
    """
    known = "SELECT 1 FROM pragma_function_list WHERE name = 'is_block'"
    if database.execute(known).fetchone() is not None:
        return
    for function in _FUNCTIONS:
        database.create_function(function.__name__, 1, function, deterministic=True)
    database.create_function("message_fits", 7, row_checks.message_fits, deterministic=True)
    row_checks.teach_contents(database)
    database.create_function("spool_is_sound", 10, row_checks.Verifier(database))


@dataclass(frozen=True, slots=True)
class Cell:
    """The rule of one column. kind: SQLite's type of the value. rule: an SQL condition for a value
    of that type, where {0} is the column. null: whether the column may be NULL.
    """

    kind: str
    rule: str = "1"
    null: bool = False

    def sound(self, column: str) -> str:
        condition = f"typeof({column}) = '{self.kind}' AND {self.rule.format(column)}"
        return f"({column} IS NULL OR {condition})" if self.null else f"({condition})"


def _number(low: int = 0, high: int = HIGHEST, null: bool = False) -> Cell:
    return Cell("integer", f"{{0}} BETWEEN {low} AND {high}", null)


def _words(function: str = "is_text", null: bool = False) -> Cell:
    return Cell("text", f"{function}(CAST({{0}} AS BLOB))", null)


_ID, _U32, _BIT, _QOS = _number(1), _number(high=MOST), _number(high=1), _number(high=2)
_TIME, _TEXT, _TEXT_OR_NULL = _number(null=True), _words(), _words(null=True)
_MOMENT = _number(-HIGHEST, null=True)
_BLOCK, _EVEN, _BLOB = (
    Cell("blob", "is_block(CAST({0} AS BLOB))"),
    Cell("blob", "length({0}) % 2 = 0"),
    Cell("blob"),
)
_TOPIC, _NAMES = _words("is_topic"), _words("is_names")

CELLS: dict[str, dict[str, Cell]] = {
    "session": {
        "id": _ID,
        "client": _TEXT,
        "expiry": _U32,
        "left": _TIME,
        "incarnation": _U32,
        "user": _TEXT_OR_NULL,
    },
    "subscription": {
        "session": _ID,
        "filter": _words("is_filter"),
        "options": Cell("integer", "{0} BETWEEN 0 AND 31 AND {0} & 3 < 3"),
        "identifier": _number(high=0xFFF_FFFF),
    },
    "flow": {"session": _ID, "received": _EVEN, "next": _ID, "sent": _EVEN, "released": _EVEN},
    "journey": {
        "session": _ID,
        "lineage": _number(1, MOVING_IDS - 1),
        "moves": _number(high=MOST_MOVES - 1),
        "closed": _NAMES,
        "tails": _NAMES,
        "filters": _NAMES,
        "key": _TEXT_OR_NULL,
        "user": _TEXT_OR_NULL,
        "member": _TEXT_OR_NULL,
        "done": _NAMES,
    },
    "retained": {
        "topic": _TOPIC,
        "client": _TEXT,
        "qos": _QOS,
        "properties": _BLOCK,
        "expires": _TIME,
        "payload": _BLOB,
        "version": _number(high=MOST_VERSION, null=True),
    },
    "will": {
        "client": _TEXT,
        "due": _TIME,
        "delay": _U32,
        "topic": _TOPIC,
        "qos": _QOS,
        "retain": _BIT,
        "properties": _BLOCK,
        "expiry": _number(high=MOST, null=True),
        "payload": _BLOB,
    },
    "mark": {
        "device": _TEXT,
        "place": _number(high=PLACES - 1),
        "incarnation": _number(1, MOST),
        "highest": _number(),
        "window": Cell("integer"),
        "kept": _EVEN,
    },
    "aside": {
        "id": _ID,
        "bridge": _TEXT,
        "at": _MOMENT,
        "topic": _TOPIC,
        "qos": _QOS,
        "retain": _BIT,
        "properties": _BLOCK,
        "expires": _TIME,
        "payload": _BLOB,
        "reason": _TEXT,
    },
    "origin": {"kind": _TEXT, "key": _TEXT, "origin": _TEXT, "size": _number()},
    "place": {
        "key": _TEXT,
        "epoch": _number(high=(1 << 63) - 1),
        "doubtful": _QOS,
        "older": _NAMES,
    },
    "given": {
        "key": _TEXT,
        "member": _TEXT,
        "parts": _number(),
        "messages": _number(),
        "ends": _TIME,
    },
    "given_part": {"id": _ID, "key": _TEXT, "part": _number(), "body": _BLOB},
    "batch": {
        "number": _ID,
        "first": _ID,
        "last": _ID,
        "rows": _number(),
        "bytes": _number(),
        "sha256": _TEXT,
        "cut": _number(-HIGHEST),
        "landed": _MOMENT,
    },
    "batch_content": {"number": _ID, "spool_bytes": _number(), "keys": _BLOB},
    "spool": {
        "id": _ID,
        "device": _TEXT_OR_NULL,
        "incarnation": _TIME,
        "sequence": _TIME,
        "client": _TEXT,
        "topic": _TEXT,
        "payload": _BLOB,
        "boot": _number(),
        "monotonic": _number(-HIGHEST),
        "received": _MOMENT,
    },
    "content_check": {"kind": _TEXT, "key": _TEXT, "sum": _U32},
    "twin": {"kind": _TEXT, "key": _TEXT, "cells": _TEXT},
    "spool_check": {"last": _ID, "first": _ID, "sums": _BLOB},
    "message": {
        "id": _ID,
        "topic": _TOPIC,
        "retain": _BIT,
        "count": _number(1, MOST),
        "properties": _BLOCK,
        "expires": _TIME,
        "body": _BLOB,
    },
    "queue": {
        "session": _ID,
        "first": _ID,
        "count": _number(1, MOST),
        "message": _ID,
        "skip": _number(),
        "flags": _number(2, 5),
        "extra": Cell("blob", "is_extra(CAST({0} AS BLOB))"),
        "share": _TEXT,
        "size": _number(),
    },
}
"""Rules by table and column. The values of `meta` depend on their keys (`meta.py`)."""


_WHOLE = {
    "spool": (row_checks.SOUND,),
    "mark": (row_checks.MARK_FITS,),
    **{table: (fits,) for table, fits in row_checks.FITS_BY_TABLE.items()},
}
"""SQL conditions for whole rows, by table: true if a row still has the cells with which it was
stored.
"""
CHANGED = "contents"
"""Name that stands for the damaged column if only the check of a whole row fails."""


def sound(table: str) -> str:
    """Return an SQL condition: true if each cell of a row obeys its rule. The connection must be
    prepared by `teach`.
    """
    rules = [cell.sound(f"{table}.{name}") for name, cell in CELLS[table].items()]
    return " AND ".join([*rules, *_WHOLE.get(table, ())])


@dataclass(frozen=True, slots=True)
class Broken:
    """A row with a damaged cell. row: the row's key. columns: the damaged columns."""

    table: str
    row: tuple[Any, ...]
    columns: tuple[str, ...]

    def __str__(self) -> str:
        row = ", ".join(repr(value)[:60] for value in self.row)
        if self.columns == (CHANGED,):
            return f"row {row} of {self.table}: its contents have changed since they were stored"
        return f"row {row} of {self.table}: invalid {' and '.join(self.columns)}"


def broken(
    database: sqlite3.Connection, table: str, after: int | None = None, count: int = -1
) -> Iterator[Broken]:
    """Yield the rows of a table that have a damaged cell. The connection must be prepared by
    `teach`. after, count: read only `count` rows with an `id` above `after`; None: read all rows.
    """
    info = database.execute(f"PRAGMA table_info({table})").fetchall()
    keys = [column[1] for column in sorted(info, key=lambda column: int(column[5])) if column[5]]
    cells = {name: CELLS[table][name] for _, name, *_ in info if name in CELLS[table]}
    flags = [f"({cell.sound(name)}) IS NOT TRUE" for name, cell in cells.items()]
    flags += [f"({rule}) IS NOT TRUE" for rule in _WHOLE.get(table, ())]
    rows = (
        table
        if after is None
        else f"(SELECT * FROM {table} WHERE id > ? ORDER BY id LIMIT ?) AS {table}"  # noqa: S608
    )
    query = f"SELECT {', '.join(keys + flags)} FROM {rows} WHERE {' OR '.join(flags)}"  # noqa: S608
    for row in database.execute(query, () if after is None else (after, count)):
        names = (*cells, *(CHANGED for _ in _WHOLE.get(table, ())))
        bad = [name for name, bad in zip(names, row[len(keys) :], strict=True) if bad]
        shown = [name for name in bad if name != CHANGED] or bad
        yield Broken(table, row[: len(keys)], tuple(shown))
