"""The registry's tables and their migration. In: a SQLite file of any version up to the present
one. Out: a file of the present version.

device  one row for each device. status 'ready': written, read back, and the board has greeted;
        'written': the same for a foreign firmware, which need not greet, and for a radio board,
        which greets on the air only; 'admitted': let in without proof, so key and board are not
        known; 'revoked'. firmware: SHA-256 of the HEX file. created, flashed, changed (time of the
        last change of status): ISO 8601 UTC.
        before: the status that a revoked device had before it was revoked, if known.
        radio: channel and number of a radio board (radio_plan.py).
work    one row for each board that is being written, by the board's name after the job, from before
        avrdude starts until everything was read back. key: the key being written. was: the present
        name of a board that is being renamed.

In a site of several gateways there is also the table `shared` (`sharing.py`).
"""

import sqlite3

from gateway.errors import OncewayError

_FIRST = """
    CREATE TABLE device (name TEXT PRIMARY KEY, board TEXT NOT NULL, key BLOB NOT NULL,
        status TEXT NOT NULL, port TEXT, firmware TEXT,
                         created TEXT NOT NULL, flashed TEXT) STRICT;
"""
_WORK = """
    CREATE TABLE work (name TEXT PRIMARY KEY, board TEXT NOT NULL, key BLOB NOT NULL,
        port TEXT NOT NULL, was TEXT,
                       begun TEXT NOT NULL) STRICT;
    INSERT INTO work SELECT name, board, key, coalesce(port, ''), NULL, created
        FROM device WHERE status = 'flashing';
    CREATE TABLE device_new (name TEXT PRIMARY KEY, board TEXT, key BLOB,
                             status TEXT NOT NULL
                             CHECK (status IN ('ready', 'admitted', 'revoked')),
                             port TEXT, firmware TEXT,
                             created TEXT NOT NULL, flashed TEXT) STRICT;
    INSERT INTO device_new SELECT name, board, key, replace(status, 'flashing', 'ready'), port,
        firmware, created, flashed
        FROM device WHERE status <> 'flashing' OR flashed IS NOT NULL;
    DROP TABLE device;
    ALTER TABLE device_new RENAME TO device;
"""
_WRITTEN = """
    CREATE TABLE device_new (name TEXT PRIMARY KEY, board TEXT, key BLOB,
                             status TEXT NOT NULL
                             CHECK (status IN ('ready', 'written', 'admitted', 'revoked')),
                             port TEXT, firmware TEXT,
                             created TEXT NOT NULL, flashed TEXT, changed TEXT NOT NULL) STRICT;
    INSERT INTO device_new SELECT name, board, key, status, port, firmware, created, flashed,
        coalesce(flashed, created) FROM device;
    DROP TABLE device;
    ALTER TABLE device_new RENAME TO device;
"""
_RADIO = """
    ALTER TABLE device ADD COLUMN radio TEXT;
    ALTER TABLE work ADD COLUMN radio TEXT;
"""
_BEFORE = """
    ALTER TABLE device ADD COLUMN before TEXT;
"""
_MIGRATIONS = (_FIRST, _WORK, _WRITTEN, _RADIO, _BEFORE)

VERSION = len(_MIGRATIONS)


def migrate(connection: sqlite3.Connection, where: str) -> None:
    """Migrate the file to `VERSION`. Raises OncewayError if the file is newer."""
    while (version := _version(connection)) < VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _version(connection) == version:  # no other process was quicker
                for statement in _MIGRATIONS[version].split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
    if version > VERSION:
        raise OncewayError(
            f"the registry was written by a newer Onceway (schema {version}, this one knows"
            f" {VERSION})",
            where,
            "Upgrade Onceway",
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
