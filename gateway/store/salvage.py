"""A store that is damaged: what is wrong with it, and what can still be read.

In: a data directory. Out: findings; or a new store with every row that the old one still gives, and the old file beside it.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.store.schema import FILE, SCHEMA_VERSION, StoreError, connect, prepare, salvaged, sync_folder

_MOST_FINDINGS = 20
_FIRST = ("meta", "spool", "batch", "batch_content")


@dataclass(frozen=True, slots=True)
class Salvaged:
    """rows: by table, how many were copied. damaged: tables that could not be read to their end. old: where the damaged file is now."""

    rows: dict[str, int]
    damaged: list[str]
    old: Path


def check(folder: Path) -> list[str]:
    """What is wrong with the store in a folder; empty when nothing is. StoreError when there is none."""
    if salvaged(folder):
        return ["a salvage was interrupted: run it again"]
    path = _existing(folder)
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            found = [row[0] for row in database.execute(f"PRAGMA integrity_check({_MOST_FINDINGS})")]
            version = database.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError as error:
        return [str(error)]
    if found == ["ok"] and not 0 < version <= SCHEMA_VERSION:
        found.append(f"schema {version} is not known here")
    return [text for text in found if text != "ok"]


def salvage(folder: Path) -> Salvaged:
    """Make a new store of what the old one still gives. The gateway must not run. Raises StoreError.

    Whenever it is interrupted, run it again: until the new store is whole, the old one stays where it is; from then on files only have to
    change places, and until they have, `open_store` refuses.
    """
    finish(folder)
    path = _existing(folder)
    unfinished = folder / "salvage.db"
    for leftover in (unfinished, *_companions(unfinished)):
        leftover.unlink(missing_ok=True)
    rows: dict[str, int] = {}
    damaged = []
    with closing(connect(unfinished)) as target, closing(sqlite3.connect(path)) as source:
        prepare(target, "")
        tables = [row[0] for row in target.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
        for table in sorted(tables, key=lambda name: (name not in _FIRST, name)):
            rows[table], whole = _copy(source, target, table)
            if not whole:
                damaged.append(table)
        _keep_numbering(source, target)
        target.execute("DELETE FROM queue WHERE message NOT IN (SELECT id FROM message)")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    now = int(time.time())
    unfinished.rename(folder / f"salvaged-{now}.db")
    finish(folder)
    return Salvaged(rows, damaged, folder / f"damaged-{now}.db")


def finish(folder: Path) -> None:
    """Let a salvaged store that is whole take the place of the damaged one. Does nothing when there is none."""
    path = folder / FILE
    for new in salvaged(folder):
        sync_folder(folder)  # its name is on the disk before anything else changes
        old = folder / new.name.replace("salvaged", "damaged")
        log, index = _companions(path)
        index.unlink(missing_ok=True)
        for before, after in ((path, old), (log, _companions(old)[0])):
            if before.exists():
                before.rename(after)
        sync_folder(folder)
        new.rename(path)
        sync_folder(folder)


def _existing(folder: Path) -> Path:
    path = folder / FILE
    if not path.is_file():
        raise StoreError("there is no store here", str(path), "Name the data directory with --data")
    return path


def _companions(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> tuple[int, bool]:
    """Copy a table's rows; how many, and whether all of them could be read. From both ends, so that one bad page costs little."""
    whole = True
    width = len(target.execute(f"PRAGMA table_info({table})").fetchall())
    marks = ",".join("?" * width)
    target.execute("BEGIN")
    for order in ("ASC", "DESC"):
        try:
            for row in _rows(source, table, order):
                later = [None] * (width - len(row))  # columns that an older schema has not
                target.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (*row, *later))  # noqa: S608 - names of ours
        except sqlite3.DatabaseError:
            whole = False
        else:
            break
    target.execute("COMMIT")
    return target.execute(f"SELECT count(*) FROM {table}").fetchone()[0], whole  # noqa: S608 - names of ours


def _keep_numbering(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Spool ids are never used twice: go on behind the last one ever given, as far as the old store still knows it."""
    try:
        last = source.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'spool'").fetchone()[0] or 0
    except sqlite3.DatabaseError:
        last = 0
    last = max(last, target.execute("SELECT coalesce(max(last), 0) FROM batch").fetchone()[0])
    target.execute("DELETE FROM sqlite_sequence WHERE name = 'spool' AND seq < ?", (last,))
    if not target.execute("SELECT 1 FROM sqlite_sequence WHERE name = 'spool'").fetchone():
        target.execute("INSERT INTO sqlite_sequence VALUES ('spool', ?)", (last,))


def _rows(source: sqlite3.Connection, table: str, order: str) -> Iterator[tuple[Any, ...]]:
    keys = [row[1] for row in source.execute(f"PRAGMA table_info({table})") if row[5]]
    by = ", ".join(f"{key} {order}" for key in keys)
    yield from source.execute(f"SELECT * FROM {table} ORDER BY {by}")  # noqa: S608 - names of ours
