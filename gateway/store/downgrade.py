"""Conversion of a store for an older Onceway.

In: the store of a data directory that no program uses. Out: the same rows in the tables of an older
schema. The conversion is one transaction. Data that the older version does not know is left out,
and reported.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from gateway.mqtt.message_ids import unpack_set
from gateway.mqtt.wire import pack_u16
from gateway.store import twins
from gateway.store.move_records import without_move
from gateway.store.schema import (
    SCHEMA_VERSION,
    StoreError,
    connect,
    existing,
    open_store,
    unusable,
)

OLDEST = 1

_TO_2 = """
CREATE TABLE older (
    id INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT, incarnation INTEGER, sequence INTEGER,
    client TEXT NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL,
    boot INTEGER NOT NULL, monotonic INTEGER NOT NULL, received INTEGER) STRICT;
INSERT INTO older SELECT * FROM spool;
DELETE FROM sqlite_sequence WHERE name IN ('spool', 'older');
INSERT INTO sqlite_sequence SELECT 'older', id FROM spool_last;
DROP VIEW spool_last;
DROP TABLE spool;
ALTER TABLE older RENAME TO spool;
DELETE FROM meta WHERE key IN ('spool.last', 'generation', 'machine');
"""
"""Statements from schema 3 to 2. Schema 2 has AUTOINCREMENT in place of the view `spool_last`: both
keep the highest id that a spool row ever had.
"""

_TO_4 = (
    "DROP TABLE place; DROP TABLE given; DROP TABLE given_part;"
    " DELETE FROM meta WHERE key = 'mistrusted';"
    " UPDATE meta SET value = '[]' WHERE key = 'members';"
)
"""Statements from schema 5 to 4. If the gateway joins a site again, it treats the other members as
new, and tells them that their sessions may be outdated.
"""

_TO_6 = (
    "DELETE FROM session WHERE id IN (SELECT session FROM journey WHERE key IS NOT NULL);"
    " DROP TABLE journey;"
    " UPDATE given_part SET body = without_move(body) WHERE part = 0;"
    " DELETE FROM meta WHERE key = 'spool.boot';"
)
"""Statements from schema 7 to 6. Rows of a deleted session are deleted at the next start. Because
`spool.boot` is missing, this version of Onceway makes the checks of all rows again if it is started
next.
"""

_TO_5 = "DELETE FROM retained WHERE length(payload) = 0; ALTER TABLE retained DROP COLUMN version;"

_STEPS = {
    7: _TO_6,
    6: _TO_5,
    5: _TO_4,
    4: "DROP TABLE mark;",
    3: _TO_2,
    2: "ALTER TABLE session DROP COLUMN user;",
}
"""Statements by schema version: each converts a store of that version to the next older one."""

_LEFT_OUT = {
    7: "messages forwarded to sessions that have moved between the gateways of a site: they may be"
    " lost or arrive twice; wait until `onceway site status` shows no forwarder",
    6: "which of two gateways' retained messages is newer, and which were removed: another gateway"
    " of the site may bring removed ones back",
    5: "sessions that are on their way to another gateway of the site, and notices to other"
    " gateways that are not sent yet: wait until `onceway site status` shows neither",
    4: "the accepted sequences of each board: a reading that arrives again may be in the"
    " spool twice; the table keeps each reading once",
    3: "the generation of the store: the older version does not notice that a store is a copy",
    2: "the owner of each session: any user may take over any session",
}


def downgrade(folder: Path, version: int) -> list[str]:
    """Convert the store of a folder to schema `version`. Return sentences about the data that were
    left out. Gateway and uplink must be stopped. Raises StoreError.
    """
    path = existing(folder)
    try:
        with closing(connect(path)) as database:
            found = int(database.execute("PRAGMA user_version").fetchone()[0])
            get_name = "SELECT value FROM meta WHERE key = 'gateway'"
            name = database.execute(get_name).fetchone() or ("",)
    except sqlite3.Error as error:
        raise unusable(folder, error) from error
    if not OLDEST <= version < min(found, SCHEMA_VERSION + 1):
        raise StoreError(
            f"a store with schema {found} cannot be converted to schema {version}",
            str(path),
            f"Choose a schema from {OLDEST} to {found - 1}" if found > OLDEST else None,
        )
    try:
        open_store(folder, name[0]).close()  # refuses a damaged store, and upgrades an older one
        with closing(connect(path)) as database:
            _write(database, version)
    except sqlite3.Error as error:
        raise unusable(folder, error) from error
    return [_LEFT_OUT[step] for step in range(SCHEMA_VERSION, version, -1)]


def _write(database: sqlite3.Connection, version: int) -> None:
    steps = "".join(_STEPS[step] for step in range(SCHEMA_VERSION, version, -1))
    database.execute("PRAGMA legacy_alter_table=ON")
    database.create_function("without_move", 1, without_move)
    database.execute("BEGIN IMMEDIATE")
    try:
        # many identifiers are kept as bits, which older versions do not read
        for session, received in database.execute("SELECT session, received FROM flow").fetchall():
            kept = b"".join(map(pack_u16, unpack_set(received)))
            if kept != received:
                database.execute("UPDATE flow SET received = ? WHERE session = ?", (kept, session))
        twins.drop(database)
        for statement in filter(str.strip, steps.split(";")):
            database.execute(statement)
        database.execute(f"PRAGMA user_version={version}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
