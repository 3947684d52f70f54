"""Reads the gateway's newest commit while the gateway is stopped after the commit's sync.

In: the gateway's database. Out: whether a publication is in that commit.

A program that is stopped at this point has not yet announced its commit. So other connections to
the database do not see the commit, but a copy of database and log contains it, as after a kill.
"""

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

NEWEST = "SELECT id FROM spool_last"


def holds_publication(database: Path) -> bool:
    """Return whether the write-ahead log ends with a publication that readers cannot see yet."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / database.name
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{database}{suffix}", f"{copy}{suffix}")
        return _newest(copy, "rw") > _newest(database, "ro")


def _newest(database: Path, mode: str) -> int:
    uri = f"{database.absolute().as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True)) as opened:
        return int(opened.execute(NEWEST).fetchone()[0] or 0)
