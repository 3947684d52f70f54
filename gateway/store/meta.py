"""The rows of the table `meta`: which keys a store has, and which values each key may have.

In: an open store. Out: findings. A start refuses a store with any finding, except for the uplink's
keys, which the uplink checks.
"""

import json
import re
import sqlite3
from collections.abc import Callable
from json import JSONDecodeError

from gateway.store import twins
from gateway.store.cells import HIGHEST

UPLINK = "uplink."
"""Prefix of the uplink's keys in the table `meta`."""
_NUMBER = r"([0-9]{1,16})"


def _like(pattern: str) -> Callable[[str], bool]:
    """Return a function that checks a text. The whole text must match the pattern, and each number
    that a group of the pattern finds must be at most HIGHEST.
    """
    whole = re.compile(pattern, re.DOTALL)

    def fits(value: str) -> bool:
        found = whole.fullmatch(value)
        return found is not None and all(
            number is None or int(number) <= HIGHEST for number in found.groups()
        )

    return fits


def _json(*kinds: type) -> Callable[[str], bool]:
    def fits(value: str) -> bool:
        try:
            return isinstance(json.loads(value), kinds)
        except (JSONDecodeError, RecursionError):
            return False

    return fits


def _ranges(value: str) -> bool:
    """Whether the value is a JSON list of pairs of integers."""
    return _json(list)(value) and all(
        isinstance(item, list) and len(item) == 2 and all(type(end) is int for end in item)
        for item in json.loads(value)
    )


def _identities(value: str) -> bool:
    return _json(list)(value) and all(
        isinstance(item, list)
        and len(item) == 2
        and re.fullmatch(_NUMBER, str(item[0]))
        and re.fullmatch("[0-9a-f]{1,16}", str(item[1]))
        for item in json.loads(value)
    )


def _names(value: str) -> bool:
    return _json(list)(value) and all(isinstance(item, str) for item in json.loads(value))


def _fields(**kinds: type) -> Callable[[str], bool]:
    """Return a function that checks whether a text is a JSON object with values of these types."""

    def fits(value: str) -> bool:
        if not _json(dict)(value):
            return False
        found = json.loads(value)
        return all(type(found.get(name)) is kind for name, kind in kinds.items())

    return fits


VALUES: dict[str, Callable[[str], bool]] = {
    "epoch": _like("[0-9a-f]{1,16}"),
    "gateway": _like(".*"),
    "boot": _like(_NUMBER),
    "running": _like(_NUMBER),
    "seen": _like(_NUMBER),
    "axis": _like(rf"{_NUMBER}(?: at -?{_NUMBER})?"),
    "uptime": _like(rf"{_NUMBER} at {_NUMBER} of .+"),
    "flows": _like(rf"{_NUMBER} {_NUMBER}"),
    "swept": _like(_NUMBER),
    "spool.last": _like(_NUMBER),
    "spool.checked": _like(_NUMBER),
    "spool.boot": _like(_NUMBER),
    "spool.gone": _ranges,
    "members": _names,
    "mistrusted": _like("1"),
    "uplink.identities": _identities,
    "uplink.counted": _fields(first=int, before=int, after=int),
    "uplink.batches": _like(_NUMBER),
    "uplink.readings": _like(_NUMBER),
    "uplink.bytes": _like(_NUMBER),
    "uplink.failures": _like(_NUMBER),
    "uplink.held": _like(_NUMBER),
    "uplink.outage": _fields(since=int, error=str),
    "uplink.rival": _fields(seen=int, what=str, note=str),
}
"""Checks of the values by key. Keys without a check may have any text."""

_CROSSED = (
    "SELECT CAST(key AS BLOB) FROM (SELECT rowid, key FROM meta NOT INDEXED EXCEPT"
    " SELECT rowid, key FROM meta INDEXED BY sqlite_autoindex_meta_1)"
)
NEEDED = ("epoch", "boot", "axis", "uptime", "spool.last")
"""Keys whose wrong value would make the gateway use a number twice, or end sessions too early."""


def damage(database: sqlite3.Connection) -> dict[str, str]:
    """Return findings about `meta`, by key: missing keys that a store has after its first start,
    invalid values, and rows that differ from their copies.
    """
    found = {
        _decoded(key): value
        for key, value in database.execute(
            "SELECT CAST(key AS BLOB), iif(typeof(value) = 'text', CAST(value AS BLOB), NULL)"
            " FROM meta"
        )
    }
    if not found and not any(
        database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()  # noqa: S608
        for table in ("session", "spool", "batch")
    ):
        return {}  # the power failed while the store was created
    wanted = {"epoch": "the epoch", "gateway": "the gateway's name"}
    if found.keys() & {"generation", "uptime", "axis", "machine"}:
        wanted["boot"] = "the count of starts"
    lost = {key: f"{part} is gone (meta.{key})" for key, part in wanted.items() if key not in found}
    for key, value in found.items():
        if key is None:
            lost[""] = "a row of meta: its key is invalid"
        elif not fits(key, value):
            lost[key] = f"row {key!r} of meta: its value {_shown(value)} is invalid"
    return _differences(database) | lost


def _differences(database: sqlite3.Connection) -> dict[str, str]:
    """Return findings, by key, about damaged rows of `meta`: rows that differ from their copies in
    `twin`, and rows whose key is not the same in the table and in its index.
    """
    found = {
        item.key: str(item)
        for item in twins.changed(database, "meta")
        if item.key in NEEDED or item.key.startswith(UPLINK)
    }
    for (data,) in database.execute(_CROSSED):
        key = str(_decoded(data))
        found[key] = f"row {key!r} of meta: the index has another key for this row"
    return found


def refusal(database: sqlite3.Connection) -> str | None:
    """Return why a start refuses the store, as a sentence; None if it accepts the store."""
    return next(
        (problem for key, problem in damage(database).items() if not key.startswith(UPLINK)), None
    )


def _shown(value: bytes | None) -> str:
    return "(no text)" if value is None else repr(value.decode(errors="replace"))[:60]


def _decoded(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def fits(key: str, data: bytes | None) -> bool:
    """Whether a value is possible for a key. data: the value as UTF-8; None if it is not a text."""
    value, rule = _decoded(data), VALUES.get(key)
    if value is None or rule is None:
        return value is not None
    return bool(rule(value))
