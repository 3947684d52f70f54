"""Stores in the form of older versions."""

import sqlite3
from contextlib import closing
from pathlib import Path

from gateway.store import twins

_TO_6 = """
DELETE FROM session WHERE id IN (SELECT session FROM journey WHERE key IS NOT NULL);
DROP TABLE journey;
PRAGMA user_version=6;
"""
_TO_5 = """
DELETE FROM retained WHERE payload = x'';
ALTER TABLE retained DROP COLUMN version;
PRAGMA user_version=5;
"""
_TO_4 = (
    "DROP TABLE place; DROP TABLE given; DROP TABLE given_part;"
    " DELETE FROM meta WHERE key = 'mistrusted';"
    " PRAGMA user_version=4;"
)
_TO_3 = "DROP TABLE mark; PRAGMA user_version=3;"
_TO_2 = """
DROP VIEW spool_last;
DELETE FROM meta WHERE key IN ('spool.last', 'generation', 'machine');
ALTER TABLE spool RENAME TO newer;
CREATE TABLE spool (
    id INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT, incarnation INTEGER, sequence INTEGER,
    client TEXT NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL,
    boot INTEGER NOT NULL, monotonic INTEGER NOT NULL, received INTEGER) STRICT;
INSERT INTO spool SELECT * FROM newer;
DROP TABLE newer;
PRAGMA user_version=2;
"""
_TO_1 = "ALTER TABLE session DROP COLUMN user; PRAGMA user_version=1;"


def downgrade(path: Path, version: int) -> None:
    """Change the database at `path` into one of an older schema version, with its whole content."""
    with closing(sqlite3.connect(path)) as database:
        twins.drop(database)
        steps = _TO_6, _TO_5, _TO_4, _TO_3, _TO_2, _TO_1
        database.executescript("".join(steps[: 7 - version]))
