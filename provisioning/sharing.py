"""The device registry in a site of several gateways: turns local changes into entries for the other
members, and applies their entries.

In: entries of other members (`gateway/site/shared_state/board_entry.py`), and a registry that
commands have changed. Out: all present entries, the table `device` with their content, and changes
that were lost because another member had made a change without knowing of them.

The table `shared` keeps for each name its entry and a digest of the device's row at the last
exchange. If a row has another digest now, a command has changed the row here after that exchange.
The tables `device` and `shared` are in one file, so a registry that is restored from a backup has
the entries of that time.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from pydantic import ValidationError

from gateway.errors import OncewayError
from gateway.site.shared_state.board_entry import Board, Conflict, Entry, conflict, merged, stamp
from provisioning.radio_plan import RadioPlan

_TABLE = "CREATE TABLE IF NOT EXISTS shared (name TEXT PRIMARY KEY, entry TEXT, row TEXT) STRICT"
_COLUMNS = "board", "key", "firmware", "created", "flashed", "radio"

Row = dict[str, Any]


class Shared(NamedTuple):
    """The registry after a merge, as entries. left_out: names of boards whose row or incoming entry
    is invalid, and is ignored. conflicts: changes that have lost against other changes, and pairs
    of radio boards with the same number.
    """

    entries: list[Entry]
    left_out: list[str]
    conflicts: list[Conflict]


def share(connection: sqlite3.Connection, incoming: Iterable[Entry], member: str) -> Shared:
    """Merge `incoming` into the registry, in the caller's transaction. member: name of this
    gateway.
    """
    connection.execute(_TABLE)
    rows = {row["name"]: row for row in _select(connection, "SELECT * FROM device")}
    entries: dict[str, Entry] = {}
    stands: dict[str, str] = {}
    for kept in _select(connection, "SELECT * FROM shared"):
        entries[kept["name"]] = Entry.model_validate_json(kept["entry"])
        stands[kept["name"]] = kept["row"]
    before = dict(entries)
    left_out, conflicts = [], []
    for name in sorted(rows.keys() | entries.keys()):
        row = rows.get(name)
        if stands.get(name) != _digest(row):
            try:
                entries[name] = _changed_here(entries.get(name) or _unknown(name), row, member)
            except ValidationError:
                left_out.append(name)
    sent = list(incoming)
    for entry in sent:
        if not _is_possible(entry):
            left_out.append(entry.name)
            continue
        known = entries.get(entry.name)
        if known is not None and (found := conflict(known, entry)) is not None:
            conflicts.append(found)
        entries[entry.name] = merged(known, entry) if known else entry
    _revoke_renamed(entries, [*before.values(), *sent])
    conflicts += _with_one_number(entries, {entry.name for entry in sent})
    for name, entry in entries.items():
        row = _row(entry, rows.get(name))
        if entry != before.get(name) or _digest(row) != stands.get(name):
            _write(connection, entry, row, rows.get(name))
    return Shared(list(entries.values()), left_out, conflicts)


def _with_one_number(entries: dict[str, Entry], sent: set[str]) -> list[Conflict]:
    """Return a conflict for each pair of radio boards with the same number in a network, if an
    entry of the pair has just arrived. sent: names in the entries that have just arrived.
    """
    known: dict[tuple[int, int], Entry] = {}
    found = []
    for entry in sorted(entries.values(), key=lambda entry: entry.name):
        plan = None if entry.is_revoked else _plan(entry)
        if plan is None:
            continue
        first = known.setdefault((plan.network, plan.device), entry)
        if first is not entry and sent & {first.name, entry.name}:
            found.append(Conflict(name=first.name, lost=first.at, holds=entry.at, twin=entry.name))
    return found


def _revoke_renamed(entries: dict[str, Entry], of_old_name: Iterable[Entry]) -> None:
    """Revoke a renamed board if another member has revoked it under its old name; both names have
    the same key. of_old_name: entries before the merge and incoming entries, which may have the
    board under its old name.
    """
    keys = {
        entry.board.key
        for entry in of_old_name
        if entry.board is not None
        and (now := entries.get(entry.name)) is not None
        and now.board is None
        and now.is_revoked
    } - {None}
    for name, entry in entries.items():
        if entry.board is not None and entry.board.key in keys and not entry.lifted:
            entries[name] = entry.but(revoked=max(entry.revoked, 0))


def _unknown(name: str) -> Entry:
    """Return the entry of a board that no member has reported."""
    return Entry(name=name, lifted=0, revoked=-1, version=0, at="-", changed="-", board=None)


def _changed_here(known: Entry, row: Row | None, member: str) -> Entry:
    """Return the known entry with the changes that a command at this member has made to the row.
    row: the registry's present row, or None.
    """
    board = _board(row) if row else None
    revoked = row is not None and row["status"] == "revoked"
    changes: dict[str, Any] = {}
    changed = row["changed"] if row else known.changed
    if revoked and not known.is_revoked:
        changes["revoked"] = known.lifted
    if row is not None and not revoked and known.is_revoked:
        changes["lifted"] = known.revoked + 1
    if board != known.board:
        at = stamp(changed, member, known)
        changes |= {"board": board, "version": known.version + 1, "at": at}
    return known.but(**changes | {"changed": max(changed, known.changed)})


def _board(row: Row) -> Board:
    status = row["status"]
    if status == "revoked":
        status = row["before"] or ("written" if row["key"] else "admitted")
    fields = {column: row[column] for column in _COLUMNS}
    key = row["key"].hex() if row["key"] is not None else None
    return Board(**(fields | {"key": key}), status=status)


def _row(entry: Entry, present: Row | None) -> Row | None:
    """Return the table's row for an entry, or None if the entry needs no row."""
    board = entry.board
    if board is None and not entry.is_revoked:
        return None
    fields: Row = dict.fromkeys(_COLUMNS) | {"created": entry.changed}
    status = "admitted"
    if board is not None:
        fields = board.model_dump(include=set(_COLUMNS))
        fields["key"] = bytes.fromhex(board.key) if board.key is not None else None
        status = board.status
    return fields | {
        "name": entry.name,
        "port": present["port"] if present else None,
        "status": "revoked" if entry.is_revoked else status,
        "before": status if entry.is_revoked and board is not None else None,
        "changed": entry.changed,
    }


def _write(
    connection: sqlite3.Connection, entry: Entry, row: Row | None, present: Row | None
) -> None:
    name = entry.name
    if row is None:
        connection.execute("DELETE FROM device WHERE name = ?", (name,))
    elif _digest(row) != _digest(present):
        columns = ", ".join(row)
        places = ", ".join(f":{column}" for column in row)
        connection.execute(
            f"INSERT OR REPLACE INTO device ({columns}) VALUES ({places})",  # noqa: S608 - ours
            row,
        )
    if entry.is_revoked:  # as in `Registry.revoke`, an unfinished job enters no device
        connection.execute("DELETE FROM work WHERE name = ? OR was = ?", (name, name))
    connection.execute(
        "INSERT OR REPLACE INTO shared VALUES (?, ?, ?)",
        (name, entry.model_dump_json(), _digest(row)),
    )


def _plan(entry: Entry) -> RadioPlan | None:
    """Return the settings of a radio board; None if it has none, or invalid ones."""
    try:
        text = entry.board.radio if entry.board is not None else None
        return None if text is None else RadioPlan.from_json(text)
    except (OncewayError, ValueError, KeyError, TypeError):
        return None


def _is_possible(entry: Entry) -> bool:
    return entry.board is None or entry.board.radio is None or _plan(entry) is not None


def _digest(row: Row | None) -> str:
    """Return a digest of the columns that members share; empty for no row."""
    if row is None:
        return ""
    fields = {name: value for name, value in row.items() if name != "port"}
    if fields["key"] is not None:
        fields["key"] = fields["key"].hex()
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _select(connection: sqlite3.Connection, query: str) -> list[Row]:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, values, strict=True)) for values in cursor]
