"""The tables of `DATA/gateway.db`, and how the file is opened.

`meta`, `spool`, `batch` and `batch_content` are shared with the uplink (README.md); the other
tables belong to the broker. With STRICT tables a topic `0123` stays text. Times are milliseconds on
the broker's time axis unless said otherwise. `gateway/broker/store_rows.py` describes the columns.
"""

import os
import secrets
import sqlite3
from contextlib import suppress
from pathlib import Path

from gateway.broker.spool import ROW_OVERHEAD
from gateway.broker.store_rows import ASIDE_OVERHEAD
from gateway.errors import NotAllowed, OncewayError
from gateway.store import meta, row_checks, twins, wal
from gateway.store.rewrite import rewrite_log
from gateway.system.accounts import leave, may_use, share
from gateway.system.causes import UNKNOWN, cause

FILE = "gateway.db"
START_GATEWAY = "Start `onceway gateway run` with this data directory first."
SCHEMA_VERSION = 7
BUSY_TIMEOUT_S = 30.0
PAGE_BYTES = 1024
"""Page size of a new store in bytes. A reading changes some tens of bytes on two pages, and each
changed page is written whole, to the log and to the database. SQLite's default of 4,096 wears an SD
card three times as much. With 512, a message of 1 MB costs twice the CPU time.
"""
WAL_BYTES = 4_096_000
"""Number of bytes in the write-ahead log at which a checkpoint begins. The checkpoint copies a page
that changed several times only once.
"""
WAL_LIMIT = 2 * WAL_BYTES
"""Bound of the write-ahead log in bytes. The log may exceed it by one commit (`checkpoint.py`).
SQLite truncates a longer file to this size.
"""

ROW_SIZE = f"length(payload) + length(CAST(topic AS BLOB)) + {ROW_OVERHEAD}"
"""SQL expression: the size of a spool row in bytes, as `gateway/broker/spool.py` counts it."""

ASIDE_SIZE = (
    f"length(payload) + length(CAST(topic AS BLOB)) + length(properties) + {ASIDE_OVERHEAD}"
)
"""SQL expression: the size in bytes of a message that is set aside, as the bridge counts it
(`gateway/bridge/aside_rows.py`).
"""

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) STRICT;
CREATE TABLE spool (
    id INTEGER PRIMARY KEY, device TEXT, incarnation INTEGER, sequence INTEGER,
    client TEXT NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL,
    boot INTEGER NOT NULL, monotonic INTEGER NOT NULL, received INTEGER) STRICT;
CREATE TABLE batch (
    number INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
    rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
    sha256 TEXT NOT NULL, cut INTEGER NOT NULL, landed INTEGER) STRICT;
CREATE TABLE batch_content (number INTEGER PRIMARY KEY, spool_bytes INTEGER NOT NULL,
    keys BLOB NOT NULL) STRICT;

CREATE TABLE session (
    id INTEGER PRIMARY KEY, client TEXT NOT NULL UNIQUE, expiry INTEGER NOT NULL, left INTEGER,
    incarnation INTEGER NOT NULL,
    user TEXT) STRICT;
CREATE TABLE subscription (
    session INTEGER, filter TEXT, options INTEGER NOT NULL, identifier INTEGER NOT NULL,
    PRIMARY KEY (session, filter)) STRICT, WITHOUT ROWID;
CREATE TABLE flow (
    session INTEGER PRIMARY KEY, received BLOB NOT NULL, next INTEGER NOT NULL, sent BLOB NOT NULL,
    released BLOB NOT NULL) STRICT;
CREATE TABLE message (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, retain INTEGER NOT NULL, count INTEGER NOT NULL,
    properties BLOB NOT NULL, expires INTEGER, body BLOB NOT NULL) STRICT;
CREATE TABLE queue (
    session INTEGER, first INTEGER, count INTEGER NOT NULL, message INTEGER NOT NULL,
    skip INTEGER NOT NULL, flags INTEGER NOT NULL,
    extra BLOB NOT NULL, share TEXT NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (session, first)) STRICT, WITHOUT ROWID;
CREATE TABLE retained (
    topic TEXT PRIMARY KEY, client TEXT NOT NULL, qos INTEGER NOT NULL, properties BLOB NOT NULL,
    expires INTEGER,
    payload BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE will (
    client TEXT PRIMARY KEY, due INTEGER, delay INTEGER NOT NULL, topic TEXT NOT NULL,
    qos INTEGER NOT NULL, retain INTEGER NOT NULL,
    properties BLOB NOT NULL, expiry INTEGER, payload BLOB NOT NULL) STRICT, WITHOUT ROWID;
"""

_MARKS = """
CREATE TABLE mark (
    device TEXT, place INTEGER, incarnation INTEGER NOT NULL, highest INTEGER NOT NULL,
    window INTEGER NOT NULL, kept BLOB NOT NULL,
    PRIMARY KEY (device, place)) STRICT, WITHOUT ROWID;
"""

_MOVES = """
CREATE TABLE place (
    key TEXT PRIMARY KEY, epoch INTEGER NOT NULL, doubtful INTEGER NOT NULL, older TEXT NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE given (
    key TEXT PRIMARY KEY, member TEXT NOT NULL, parts INTEGER NOT NULL, messages INTEGER NOT NULL,
    ends INTEGER) STRICT, WITHOUT ROWID;
CREATE TABLE given_part (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, part INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE (key, part)) STRICT;
"""
"""Tables of sessions that move between the gateways of a site (`gateway/store/move_out.py`,
`move_in.py`).
"""

_VERSIONS = "ALTER TABLE retained ADD COLUMN version INTEGER;"
"""Column with the version of a retained message, by which the gateways of a site find the newest
one.
"""

_JOURNEYS = """
CREATE TABLE journey (
    session INTEGER PRIMARY KEY, lineage INTEGER NOT NULL, moves INTEGER NOT NULL,
    closed TEXT NOT NULL, tails TEXT NOT NULL, filters TEXT NOT NULL,
    key TEXT, user TEXT, member TEXT, done TEXT NOT NULL) STRICT;
"""
"""Table of sessions whose move between gateways is not finished
(`gateway/site/moving/session_moves.py`).
"""

_ASIDE = """
CREATE TABLE IF NOT EXISTS aside (
    id INTEGER PRIMARY KEY, bridge TEXT NOT NULL, at INTEGER, topic TEXT NOT NULL,
    qos INTEGER NOT NULL, retain INTEGER NOT NULL, properties BLOB NOT NULL, expires INTEGER,
    payload BLOB NOT NULL, reason TEXT NOT NULL) STRICT;
"""
"""Table of messages that a bridge has set aside. The table has no schema version of its own: a
version that does not know the table leaves it alone, so a rollback to 0.2.0 keeps the rows.
"""

_ORIGIN = """
CREATE TABLE IF NOT EXISTS origin (
    kind TEXT, key TEXT, origin TEXT NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID;
"""
"""Table of the origins of sessions, retained messages and spooled bytes (`OriginRow`). Like
`aside`, this table has no schema version of its own.
"""

_MARK_WHAT_WAS_KEPT = """
INSERT INTO mark SELECT client, 0, incarnation, 0, 0, received
    FROM session JOIN flow ON flow.session = session.id
    WHERE incarnation <> 0 AND length(received) > 0;
"""
"""Statement for a store that gets the table `mark`. It copies to this table the packet identifiers
of boards whose PUBLISH has arrived and whose PUBREL has not. The board's next HELLO shows which
sequences these identifiers belong to.
"""

_SPOOL_LAST = """
CREATE VIEW spool_last AS SELECT max(
    coalesce((SELECT max(id) FROM spool), 0),
    coalesce((SELECT last FROM batch ORDER BY number DESC LIMIT 1), 0),
    coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'spool.last'), 0)) AS id;
"""
"""View with the highest id that a spool row ever had. When the newest rows and batches are deleted,
`meta.spool.last` keeps the id. AUTOINCREMENT would keep it, too, but write a page more at each
commit.
"""

_KEEP_SPOOL_LAST = """
INSERT OR REPLACE INTO meta
    SELECT 'spool.last', CAST(seq AS TEXT) FROM sqlite_sequence WHERE name = 'spool';
"""

_UPGRADES = {
    1: "ALTER TABLE session ADD COLUMN user TEXT;",
    2: _KEEP_SPOOL_LAST + _SPOOL_LAST,
    3: _MARKS + _MARK_WHAT_WAS_KEPT,
    4: _MOVES,
    5: _VERSIONS,
    6: _JOURNEYS,
}
"""Statements by schema version: each upgrades a store of that version to the next one. An older
store keeps its AUTOINCREMENT and its page size: a change would require a rewrite of the whole file.
"""


class StoreError(OncewayError):
    """Error: the store cannot be used in its present state."""

    exit_code = 10


class StoreClosed(StoreError):
    """Error: this account may not read the store."""

    exit_code = NotAllowed.exit_code


_MAY_BE_RIGHTS = (*(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH),)


def closed_to_us(path: Path, error: Exception) -> StoreClosed | None:
    """Return an error which says that this account has no rights to a database file; None if
    `error` has another cause.
    """
    rights = not os.path.exists(path) or (os.access(path, os.R_OK) and may_use(path.parent))
    if rights or getattr(error, "sqlite_errorcode", 0) & 0xFF not in _MAY_BE_RIGHTS:
        return None
    hint = "Run the command with sudo: SQLite's log needs the right to write, even for reading"
    return StoreClosed(f"this account may not look at the store ({error})", str(path), hint)


def connect(path: Path) -> sqlite3.Connection:
    """Open a database file for reading and writing, in autocommit mode; a missing file is created.
    One thread at a time may use the connection. Accounts outside the group of a new file cannot
    read it.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
    database = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    database.execute(f"PRAGMA page_size={PAGE_BYTES}")  # of a new file
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute(f"PRAGMA journal_size_limit={WAL_LIMIT}")
    # Debian's default writes each page of a deleted message once more, as zeros
    database.execute("PRAGMA secure_delete=FAST")
    (page,) = database.execute("PRAGMA page_size").fetchone()
    database.execute(f"PRAGMA wal_autocheckpoint={WAL_BYTES // (page + wal.FRAME_BYTES)}")
    return database


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open an existing database file for reading only. SQLite reports a missing file at the first
    query.
    """
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def existing(folder: Path) -> Path:
    """Return the database file of the store in a folder. Raises StoreError if there is none."""
    path = folder / FILE
    if not path.is_file():
        raise StoreError("there is no store here", str(path), "Name the data directory with --data")
    return path


def make_folder(folder: Path) -> None:
    """Make the data directory if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    except OSError as error:
        text = f"cannot create the data directory ({error.strerror})"
        raise StoreError(text, str(folder), cause(error).todo) from error


def salvaged(folder: Path) -> list[Path]:
    """Return the files of complete salvaged stores that have not replaced the damaged store yet.
    The list is empty unless a salvage was interrupted.
    """
    return sorted(folder.glob("salvaged-*.db"))


def refuse_half_salvaged(folder: Path) -> None:
    """Raise StoreError if a salvage was interrupted, and must be run again."""
    if salvaged(folder):
        raise StoreError(
            "a salvage was interrupted",
            str(folder / FILE),
            f"Run it again: onceway store salvage --data {folder}",
        )


def refuse_orphaned(path: Path) -> None:
    """Raise StoreError if the write-ahead log exists without its database: SQLite would delete the
    log.
    """
    if damage := wal.orphaned(path):
        raise StoreError(
            f"the store is damaged ({damage})",
            str(path),
            "Restore the database from a copy, or move the log away: a new store then begins",
        )


def open_store(folder: Path, gateway: str) -> sqlite3.Connection:
    """Open the store in a folder; create it if there is none. gateway: the gateway's name. Raises
    StoreError if the store cannot be used.
    """
    path = folder / FILE
    refuse_half_salvaged(folder)
    refuse_orphaned(path)
    try:
        database = connect(path)
        with database:
            database.execute(
                "BEGIN IMMEDIATE"
            )  # no other program appends to the log or restarts it
            if damage := wal.damage(path):
                raise StoreError(
                    f"the store is damaged ({damage})",
                    str(path),
                    f"See: onceway store salvage --data {folder}",
                )
            rewrite_log(path)
            _refuse_without_meta(database, folder)
        _share(path)
        prepare(database, gateway)
    except OSError as error:
        raise StoreError(
            f"the store's log cannot be written to the disk ({error.strerror})",
            str(path),
            cause(error).todo,
        ) from error
    except sqlite3.DatabaseError as error:
        raise unusable(folder, error) from error
    return database


def _refuse_without_meta(database: sqlite3.Connection, folder: Path) -> None:
    """Raise StoreError if a store lacks rows of `meta` without which the gateway would use numbers
    a second time.
    """
    made = database.execute("PRAGMA user_version").fetchone()[0] > 0
    if made and (lost := meta.refusal(database)):
        raise StoreError(
            f"the store is damaged ({lost})",
            str(folder / FILE),
            f"See: onceway store salvage --data {folder}",
        )


def _share(path: Path) -> None:
    """Restrict the database, its log and its index to their owner and group, and give the uplink
    write access if it has an account of its own. SQLite creates log and index with the mode of the
    database.
    """
    for end in ("", "-wal", "-shm"):
        file = path.with_name(path.name + end)
        with suppress(FileNotFoundError, PermissionError):
            file.chmod(file.stat().st_mode & 0o770)
        with suppress(FileNotFoundError):
            share(file)


def leave_log(path: Path) -> None:
    """Create an empty write-ahead log and index after the database was closed. SQLite deletes both
    when the last connection closes, and an uplink with its own account cannot create them.
    """
    leave(*_log(path))


def has_log(path: Path) -> bool:
    """Return whether the write-ahead log and its index exist."""
    return all(file.exists() for file in _log(path))


def _log(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def unusable(folder: Path, error: Exception) -> StoreError:
    """Return the error to report for a store in a folder that cannot be read or written. error:
    what SQLite or the operating system has raised.
    """
    if (closed := closed_to_us(folder / FILE, error)) is not None:
        return closed
    code = getattr(error, "sqlite_errorcode", None)
    # SQLITE_ERROR: a sum beyond 64 bits, no such table
    damaged = code == sqlite3.SQLITE_ERROR or str(error).startswith("Could not decode")
    if isinstance(error, sqlite3.OperationalError) and not damaged:
        reason, todo = why = cause(error, folder)
        if why == UNKNOWN:
            todo = f"Is the disk full, or read-only? If not: onceway store check --data {folder}"
        return StoreError(
            f"the store cannot be opened: {reason} ({error})", str(folder / FILE), todo
        )
    return StoreError(
        f"the store is damaged ({str(error) or type(error).__name__})",
        str(folder / FILE),
        f"See: onceway store salvage --data {folder}",
    )


def prepare(database: sqlite3.Connection, gateway: str) -> None:
    """Create or upgrade the tables. gateway: the gateway's name. Raises StoreError if a newer
    version made the tables.
    """
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        text = (
            f"the store was written by a newer Onceway (schema {version}, this version knows"
            f" {SCHEMA_VERSION})"
        )
        raise StoreError(text, hint="Upgrade Onceway")
    if version == 0:
        database.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} {_MARKS} {_MOVES} {_VERSIONS} {_JOURNEYS} {_SPOOL_LAST}"
            f" PRAGMA user_version={SCHEMA_VERSION}; COMMIT"
        )
    elif version < SCHEMA_VERSION:
        twins.drop(database)  # the triggers may name columns that the older schema lacks
        steps = " ".join(_UPGRADES[older] for older in range(version, SCHEMA_VERSION))
        database.executescript(
            f"BEGIN IMMEDIATE; {steps} PRAGMA user_version={SCHEMA_VERSION}; COMMIT"
        )
    with database:
        database.execute("BEGIN IMMEDIATE")
        database.execute(_ASIDE)
        database.execute(_ORIGIN)
        database.execute(row_checks.TABLE)
        database.execute(row_checks.CONTENT_TABLE)
        twins.make(database)
        database.execute("INSERT OR IGNORE INTO meta VALUES ('epoch', ?)", (secrets.token_hex(4),))
        database.execute("INSERT OR REPLACE INTO meta VALUES ('gateway', ?)", (gateway,))
