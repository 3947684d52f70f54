"""Free space on the disk. The test sets the free space that the file system reports."""

import errno
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.store.schema import FILE, open_store
from gateway.store.space import NAME, RESERVE, Space, release


class Disk:
    """A disk of limited size. free: number of free bytes if the reserve file does not exist."""

    def __init__(self, folder: Path) -> None:
        self.free = 0
        self._reserve = folder / NAME

    def statvfs(self, path: Path) -> SimpleNamespace:
        held = self._reserve.stat().st_blocks * 512 if self._reserve.exists() else 0
        left = max(0, self.free - held)
        return SimpleNamespace(f_frsize=1, f_blocks=100 * RESERVE, f_bfree=left, f_bavail=left)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(tmp_path)
    monkeypatch.setattr(os, "statvfs", disk.statvfs)
    return disk


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_store(tmp_path, "test")) as database:
        yield database


def fill(database: sqlite3.Connection, size: int) -> None:
    """Make the database larger by at least `size` bytes, in one commit."""
    with database:
        database.execute("CREATE TABLE filler (data BLOB)")
        database.execute("INSERT INTO filler VALUES (zeroblob(?))", (size,))


def test_a_disk_with_plenty_of_space_keeps_no_reserve(
    tmp_path: Path, disk: Disk, database: sqlite3.Connection
) -> None:
    disk.free = 50 * RESERVE
    space = Space(tmp_path, database)
    assert (space.short, space.room > RESERVE, (tmp_path / NAME).exists()) == (False, True, False)


def test_messages_are_refused_before_the_reserve_is_touched(
    tmp_path: Path, disk: Disk, database: sqlite3.Connection
) -> None:
    disk.free = 4 * RESERVE
    space = Space(tmp_path, database)
    assert (tmp_path / NAME).stat().st_size == RESERVE
    assert 0 < space.room * 2 <= 2 * RESERVE
    disk.free = 2 * RESERVE
    space.look()
    assert (space.short, space.room, (tmp_path / NAME).exists()) == (True, 0, True)
    disk.free = 4 * RESERVE
    space.look()
    assert (space.short, space.room > 0) == (False, True)


def test_a_disk_that_something_else_fills_gets_the_reserve_back(
    tmp_path: Path, disk: Disk, database: sqlite3.Connection
) -> None:
    disk.free = 4 * RESERVE
    space = Space(tmp_path, database)
    disk.free = RESERVE
    space.look()
    assert (space.short, (tmp_path / NAME).exists()) == (True, False)
    assert not release(tmp_path)
    disk.free = 3 * RESERVE
    space.look()
    assert (space.short, (tmp_path / NAME).exists()) == (False, True)


def test_deleted_rows_make_room(tmp_path: Path, disk: Disk, database: sqlite3.Connection) -> None:
    disk.free = 2 * RESERVE
    space = Space(tmp_path, database)
    assert space.short
    fill(database, 2 * RESERVE)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    space.look()
    assert space.short
    database.execute("DELETE FROM filler")
    space.look()
    assert (space.short, space.room > 0) == (False, True)


def test_the_log_is_copied_before_it_needs_more_than_there_is(
    tmp_path: Path, disk: Disk, database: sqlite3.Connection
) -> None:
    disk.free = 4 * RESERVE
    space = Space(tmp_path, database)
    database.execute("PRAGMA wal_autocheckpoint=0")
    fill(database, RESERVE // 2)
    space.look()
    assert (tmp_path / FILE).stat().st_size > RESERVE // 2
    assert (tmp_path / f"{FILE}-wal").stat().st_size == 0


def test_a_disk_too_full_to_copy_the_log_is_known_to_be_full(
    tmp_path: Path, disk: Disk, database: sqlite3.Connection
) -> None:
    disk.free = 4 * RESERVE
    space = Space(tmp_path, database)
    database.execute("PRAGMA wal_autocheckpoint=0")
    fill(database, RESERVE // 2)
    disk.free = RESERVE
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # limit of a file's size
    resource.setrlimit(resource.RLIMIT_FSIZE, (RESERVE // 4, before[1]))
    try:
        space.look()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / FILE).stat().st_size < RESERVE // 2
    assert (space.short, space.room, (tmp_path / NAME).exists()) == (True, 0, False)


def test_reserve_is_not_made_from_the_last_space(
    tmp_path: Path, disk: Disk, database: sqlite3.Connection
) -> None:
    disk.free = RESERVE
    space = Space(tmp_path, database)
    assert (space.short, space.room, (tmp_path / NAME).exists()) == (True, 0, False)


def test_reserve_that_cannot_be_made_whole_is_given_back(
    tmp_path: Path, disk: Disk, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program has taken the space meanwhile. The store counts on a whole reserve."""

    def fills_up(file: int, offset: int, size: int) -> None:
        os.ftruncate(file, size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.free = 4 * RESERVE
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", fills_up)
        space = Space(tmp_path, database)
        assert not (tmp_path / NAME).exists()
    space.look()
    assert (tmp_path / NAME).stat().st_size == RESERVE
