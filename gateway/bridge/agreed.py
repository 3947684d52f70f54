"""The agreements of one bridge on disk: the file DATA/bridges/NAME.agreed.

In: changed digests by topic, with the number of the mark that covers them, in one transaction. Out:
all of them at a start. A missing or unreadable file counts as empty: then nothing is proven, and no
retained message is deleted. Backups leave the file out, for a restored store is older than the
agreements.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from gateway.bridge.agreement import Digest
from gateway.bridge.pairing import AGREED, FOLDER
from gateway.errors import OncewayError
from gateway.store.schema import connect, make_folder

_TABLES = """
CREATE TABLE IF NOT EXISTS agreed (topic TEXT PRIMARY KEY, digest BLOB NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS far_mark (id INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT;
"""


class AgreedFile:
    """The file of one bridge. Each method opens and closes the file."""

    def __init__(self, data: Path, name: str) -> None:
        self._path = data / FOLDER / f"{name}{AGREED}"

    def read(self) -> tuple[dict[str, bytes], int]:
        """Return the digests by topic, and the number of the mark."""
        try:
            with closing(self._open()) as database:
                held = dict(database.execute("SELECT topic, digest FROM agreed").fetchall())
                row = database.execute("SELECT number FROM far_mark").fetchone()
                return held, 0 if row is None else row[0]
        except (sqlite3.Error, OSError, OncewayError):
            self._path.unlink(missing_ok=True)
            return {}, 0

    def write(self, changed: dict[str, Digest], number: int, gone: Iterable[str] = ()) -> None:
        """Write changed digests; None deletes one. gone: further topics to delete. Raises
        OncewayError.
        """
        rows = [(topic, state) for topic, state in changed.items() if state is not None]
        deleted = [(topic,) for topic, state in changed.items() if state is None]
        try:
            with closing(self._open()) as database, database:
                database.execute("BEGIN IMMEDIATE")
                database.executemany("DELETE FROM agreed WHERE topic = ?", [(t,) for t in gone])
                database.executemany("DELETE FROM agreed WHERE topic = ?", deleted)
                database.executemany("INSERT OR REPLACE INTO agreed VALUES (?, ?)", rows)
                database.execute("INSERT OR REPLACE INTO far_mark VALUES (1, ?)", (number,))
        except (sqlite3.Error, OSError) as error:
            raise OncewayError(
                f"the agreed retained messages cannot be kept ({error})", str(self._path)
            ) from error

    def _open(self) -> sqlite3.Connection:
        make_folder(self._path.parent)
        database = connect(self._path)
        database.executescript(_TABLES)
        return database
