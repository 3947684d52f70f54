"""Salvage: a new store with all rows of a damaged store that can still be read.

In: a data directory. Out: a new store with the readable rows, the old file beside the new store,
and the losses in words.
"""

import json
import os
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.store import meta, twins, wal
from gateway.store.cells import teach
from gateway.store.check import CELLS, LEFT_BEHIND, RULES, check
from gateway.store.reading import Gap, read
from gateway.store.references import GONE, missing, spool_holes
from gateway.store.schema import FILE, connect, existing, prepare, refuse_orphaned, salvaged
from gateway.system.amounts import amount
from gateway.system.sync import sync

_FAR = 1_000_000_000
_NEWER = {"place": 5, "given": 5, "given_part": 5, "journey": 7}
"""Tables that older versions do not have, with the first schema version that has the table. If an
older store lacks such a table, it has lost nothing.
"""
_FIRST = ("meta", "spool", "batch", "batch_content")


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The result of a salvage. findings: the damage, as reported by `check`. rows: number of copied
    rows by table. lost: the losses in words, as far as they are known. old: new path of the damaged
    file.
    """

    findings: list[str]
    rows: dict[str, int]
    lost: list[str]
    old: Path


def salvage(folder: Path) -> Salvaged:
    """Make a new store from the readable rows of the old one. The gateway must be stopped. Raises
    StoreError.

    An interrupted salvage can be run again. Until the new store is complete, the old store stays in
    place. Then the files are only renamed. Until every file is renamed, `open_store` refuses the
    store.
    """
    finish(folder)
    path = existing(folder)
    refuse_orphaned(path)
    findings = check(folder)
    unfinished = folder / "salvage.db"
    for leftover in (unfinished, *_companions(unfinished)):
        leftover.unlink(missing_ok=True)
    with closing(connect(unfinished)) as target, closing(sqlite3.connect(path)) as source:
        prepare(target, "")
        lost = _copy_all(source, target, path, bool(findings))
        rows = {
            table: target.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in _tables(target)
        }
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.stat()
    os.chown(unfinished, before.st_uid, before.st_gid)  # root may do this for the service
    unfinished.chmod(before.st_mode)
    now = int(time.time())
    unfinished.rename(folder / f"salvaged-{now}.db")
    finish(folder)
    return Salvaged(findings, rows, lost, folder / f"damaged-{now}.db")


def finish(folder: Path) -> None:
    """Put a complete salvaged store, if there is one, in the place of the damaged store."""
    path = folder / FILE
    for new in salvaged(folder):
        sync(folder)  # the new name is on disk before other changes
        old = folder / new.name.replace("salvaged", "damaged")
        log, index = _companions(path)
        index.unlink(missing_ok=True)
        for before, after in ((path, old), (log, _companions(old)[0])):
            if before.exists():
                before.rename(after)
        sync(folder)
        new.rename(path)
        sync(folder)


def _companions(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def _tables(database: sqlite3.Connection) -> list[str]:
    names = [
        row[0]
        for row in database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
    ]
    return sorted(names, key=lambda name: (name == "twin", name not in _FIRST, name))


def _copy_all(
    source: sqlite3.Connection, target: sqlite3.Connection, path: Path, damaged: bool
) -> list[str]:
    """Copy the readable rows of all tables except `mark`. Delete rows that refer to lost rows.
    Return the losses in words.
    """
    lost = []
    gaps: dict[str, list[Gap]] = {}
    drawn = target.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    target.execute("BEGIN")
    left_out = {"mark", *_unknown_to(source)}  # a mark may acknowledge a lost row
    for table in _tables(target):
        if table in left_out:
            continue
        if table == "twin":  # sorted last: until now the triggers have copied damaged cells
            target.execute("DELETE FROM twin")
        gaps[table], senseless = _copy(source, target, table)
        lost += [f"{table}: {amount(senseless, 'invalid row')}"] if senseless else []
    for gap in gaps.get("twin", ()):
        twins.accept(target, gap.first, gap.after)
    for key, problem in meta.damage(target).items():
        if " is gone (" in problem:
            continue
        if key != "members":  # `_keep_numbering` replaces this row
            target.execute("DELETE FROM meta WHERE key = ?", (key,))
        target.executemany(
            "INSERT INTO meta SELECT 'epoch', ? WHERE ? = 'epoch'", [(*(drawn or ("",)), key)]
        )
        lost.append(problem)
    if log := wal.damage(path):
        lost.insert(0, log)
    known = _keep_numbering(source, target, gaps)
    lost += [
        f"{table}: {gap}" for table, found in gaps.items() for gap in found if table != "spool"
    ]
    lost += _missing_in_spool(target, known, ends=damaged)
    lost += _end_sessions(target, gaps["flow"])
    lost += _end_what_is_not_whole(target)
    if target.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone() == drawn:
        lost.append("meta: the epoch; a new one begins, with batch 1")
        target.execute("DELETE FROM batch")
        target.execute("DELETE FROM batch_content")
    target.execute(
        "INSERT OR IGNORE INTO meta SELECT 'boot', CAST(coalesce(max(boot), 0) AS TEXT) FROM spool"
    )
    teach(target)
    for rule in (*CELLS, *RULES, LEFT_BEHIND):
        count = target.execute(f"DELETE FROM {rule.table} WHERE {rule.broken}").rowcount  # noqa: S608 - names of ours
        lost += [f"{rule.text}: {count}"] if count else []
    lost += _end_what_is_not_whole(target)  # invalid rows are gone now, too
    _note_holes(target)
    twins.fill(target)
    target.execute("COMMIT")
    return lost


def _unknown_to(source: sqlite3.Connection) -> tuple[str, ...]:
    with suppress(sqlite3.DatabaseError):
        (version,) = source.execute("PRAGMA user_version").fetchone()
        if version > 0:
            never_had = [table for table, first in _NEWER.items() if version < first]
            made = source.execute("SELECT name FROM sqlite_schema").fetchall()
            # tables without a schema version of their own (schema.py)
            later = ("aside", "origin", "spool_check", "content_check", "twin")
            never_had += [name for name in later if (name,) not in made]
            return tuple(never_had)
    return ()


def _copy(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str
) -> tuple[list[Gap], int]:
    """Copy a table's readable rows. Return the unreadable gaps between them, and the number of rows
    that the new table has refused.
    """
    width = len(target.execute(f"PRAGMA table_info({table})").fetchall())
    # In `meta` the new store already has its own epoch; in other tables a row may have been read
    # twice.
    verb, conflict = ("REPLACE", "") if table == "meta" else ("INSERT", " ON CONFLICT DO NOTHING")
    insert = f"{verb} INTO {table} VALUES ({','.join('?' * width)}){conflict}"
    gaps, senseless = [], 0
    for item in read(source, table):
        if isinstance(item, Gap):
            gaps.append(item)
            continue
        later = [None] * (width - len(item))  # columns that an older schema has not
        try:
            target.execute(insert, (*item, *later))
        except sqlite3.DatabaseError:
            senseless += 1
    return gaps, senseless


def _missing_in_spool(target: sqlite3.Connection, known: bool, ends: bool) -> list[str]:
    """Return a sentence for each series of ids that are missing in the spool. Ids are consecutive,
    and rows are deleted from the front. known: whether the last id ever given is known. ends:
    whether to report ids before the first row and after the last row, too.
    """
    query = (
        "SELECT (SELECT id FROM spool_last), (SELECT coalesce(max(last), 0) FROM batch WHERE landed"
        " IS NOT NULL)"
    )
    last, landed = target.execute(query).fetchone()
    numbers = (
        "SELECT id FROM spool UNION ALL SELECT ?2 + 1" if known and ends else "SELECT id FROM spool"
    )
    holes = target.execute(
        "SELECT before + 1, id - 1 FROM"  # noqa: S608 - texts of ours
        f" (SELECT id, lag(id, 1, ?1) OVER (ORDER BY id) AS before FROM ({numbers})) WHERE id >"
        " before + 1 AND ?2 > 0",
        (landed, last),
    ).fetchall()
    (lowest,) = target.execute("SELECT min(id) FROM spool").fetchone()
    found = [
        (first, end) for first, end in holes if ends or (lowest is not None and first > lowest)
    ]
    lost = [
        f"spool: {amount(end - first + 1, 'row')}, {first} to {end}, except rows that had landed"
        for first, end in found
    ]
    return (
        lost
        if known
        else [
            *lost,
            "spool: the number of the last row. So rows after the last readable one are not listed",
        ]
    )


def _end_what_is_not_whole(target: sqlite3.Connection) -> list[str]:
    """Mark sessions that lost a row, so that the next start ends them and their clients see Session
    Present 0. Return the losses in words.
    """
    ended = [item for item in missing(target) if item.kind in ("session", "anew")]
    target.executemany(
        "UPDATE session SET expiry = 0 WHERE id = ?", [(item.session,) for item in ended]
    )
    return [f"{item}, so the session ends" for item in ended]


def _note_holes(target: sqlite3.Connection) -> None:
    """Record in `meta` which rows of the spool are known to be lost."""
    holes = sorted({*spool_holes(target), *spool_holes(target, 0)})
    target.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (GONE, json.dumps(holes)))


def _end_sessions(target: sqlite3.Connection, gaps: list[Gap]) -> list[str]:
    """Delete sessions that lost their row in `flow`, because their packet identifiers would be
    given to other messages. Their clients see Session Present 0. gaps: gaps in `flow`. Return the
    losses in words.
    """
    ended = []
    for gap in gaps:
        found = target.execute(
            "SELECT id, client, (SELECT coalesce(sum(count), 0) FROM queue WHERE queue.session ="
            " session.id) FROM session WHERE id NOT IN (SELECT session FROM flow) AND id >= ? AND"
            " id < ?",
            (gap.first or 0, gap.after if gap.after is not None else 1 << 62),
        ).fetchall()
        for number, client, waiting in found:
            ended.append(
                f"session {client}: its row in flow is gone, so the session ends, with"
                f" {amount(waiting, 'message')} in its queue"
            )
            for statement in (
                "session WHERE id",
                "subscription WHERE session",
                "queue WHERE session",
            ):
                target.execute(f"DELETE FROM {statement} = ?", (number,))  # noqa: S608 - names of ours
    return ended


def _keep_numbering(
    source: sqlite3.Connection, target: sqlite3.Connection, gaps: dict[str, list[Gap]]
) -> bool:
    """Record in the new store the highest id that the spool has ever given, because no id may be
    used twice. Return whether this id is known. If not, record an id that is `_FAR` higher than the
    highest id found.
    """
    (last,) = target.execute("SELECT id FROM spool_last").fetchone()
    known = not (gaps["batch"] or gaps["meta"] or any(gap.after is None for gap in gaps["spool"]))
    with suppress(sqlite3.DatabaseError):  # schemas before 3 have this table
        found = source.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'spool'")
        (noted,) = found.fetchone()
        if noted is not None:
            last, known = max(last, noted), True
    target.execute(
        "INSERT OR REPLACE INTO meta VALUES ('spool.last', ?)",
        (str(last + (0 if known else _FAR)),),
    )
    # rows that are lost here may be at another gateway of the site: a new line begins for it
    target.execute("DELETE FROM meta WHERE key IN ('copies.line', 'running')")
    # treat the other members as new and tell them that their sessions may be outdated: the record
    # of earlier messages may be lost
    target.execute("UPDATE meta SET value = '[]' WHERE key = 'members'")
    return known
