"""A backup of a store as one file, and its restoration.

In: a data directory. Out: a database file without a log, marked as a copy (`generation.py`); or a
data directory whose store was replaced by such a file.
"""

import os
import sqlite3
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from gateway.store import generation, run_marks
from gateway.store.schema import (
    FILE,
    START_GATEWAY,
    StoreError,
    closed_to_us,
    connect,
    connect_to_read,
    existing,
    make_folder,
    refuse_half_salvaged,
)
from gateway.system.accounts import share
from gateway.system.causes import cause
from gateway.system.sync import sync

_PAGES = 1000
"""Number of pages copied in one step. The gateway can write between two steps."""


def backup(folder: Path, target: Path) -> None:
    """Copy the store to a new file. The gateway may run. Raises StoreError, for example if `target`
    exists.
    """
    path = existing(folder)
    refuse_half_salvaged(folder)
    if target.exists():
        raise StoreError("there is a file already", str(target), "Name another file with --to")
    new = target.with_name(target.name + ".new")
    try:
        new.unlink(missing_ok=True)
        new.touch(0o600)
        with closing(connect_to_read(path)) as source, closing(sqlite3.connect(new)) as copy:
            if not source.execute("PRAGMA user_version").fetchone()[0]:
                raise StoreError("the database has no tables", str(path), START_GATEWAY)
            source.backup(copy, pages=_PAGES, sleep=0.01)
            copy.execute("PRAGMA journal_mode=DELETE")
            if copy.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                # a restore would refuse it, when the last whole backup may be gone
                raise StoreError("the store is damaged", str(path), "See: onceway store check")
            day = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
            with copy:
                generation.mark(copy, f"it is a backup of {day} UTC")
                run_marks.end(copy)
        sync(new)
        os.replace(new, target)
        sync(target.parent)
    except StoreError:
        new.unlink(missing_ok=True)
        raise
    except (sqlite3.Error, OSError) as error:
        new.unlink(missing_ok=True)
        if (closed := closed_to_us(path, error)) is not None:
            raise closed from error
        reason, todo = cause(error, path.parent, target.parent)
        text = f"{path} could not be copied: {reason} ({error})"
        raise StoreError(text, str(target), todo) from error


def restore(folder: Path, source: Path) -> Path | None:
    """Replace the store by a backup. Gateway and uplink must be stopped. Return the path to which
    the replaced store was moved, or None if there was none. Raises StoreError.
    """
    make_folder(folder)
    new, path = folder / "restored.db", folder / FILE
    old = folder / f"replaced-{int(time.time())}.db"
    try:
        new.unlink(missing_ok=True)
        with closing(connect_to_read(source)) as backup, closing(sqlite3.connect(new)) as copy:
            if backup.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise StoreError("the backup is damaged", str(source))
            backup.backup(copy)
            with copy:
                generation.mark(copy, f"it was restored from {source.name}")
                run_marks.end(copy)
        owner = folder.stat()
        os.chown(new, owner.st_uid, owner.st_gid)  # root may do this for the service
        new.chmod(0o640)
        share(new)
        sync(new)
        existed = path.exists()
        if existed:
            _empty_log(path)
            for end in ("-wal", "-shm"):  # left over after a failure; the new database would use it
                if path.with_name(path.name + end).exists():
                    os.replace(path.with_name(path.name + end), old.with_name(old.name + end))
            os.link(path, old)
        sync(folder)
        os.replace(new, path)  # at any moment a whole store exists
        sync(folder)
    except (sqlite3.Error, OSError) as error:
        reason, todo = cause(error, folder)
        text = f"the backup cannot be restored: {reason} ({error})"
        raise StoreError(text, str(source), todo) from error
    return old if existed else None


def _empty_log(path: Path) -> None:
    """Copy the log into the database as far as possible. SQLite then deletes the log when the last
    connection closes.
    """
    with suppress(sqlite3.Error), closing(connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
