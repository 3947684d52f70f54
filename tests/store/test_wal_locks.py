"""A check of the log finds damage, and does not release SQLite's locks on an open database. Without
the locks, the next process that opens the database would believe that it is the only one.
"""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.store import wal

# byte of the index that each process with an open database keeps locked (SQLite, os_unix.c)
DEAD_MAN_SWITCH = 128
PROBE = f"""
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    try:
        fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, {DEAD_MAN_SWITCH})
        print("free")
    except OSError:
        print("held")
"""


def test_a_look_at_the_log_keeps_the_locks(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE one (x)")
    database.commit()
    for _ in range(2):
        assert wal.damage(path) is None
        done = subprocess.run(
            [sys.executable, "-c", PROBE, f"{path}-shm"], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "held"
    database.close()


def test_a_log_whose_next_round_was_not_written_yet_is_whole(tmp_path: Path) -> None:
    """SQLite begins the log again in two steps, and the kill comes between them. The WAL index,
    which the uplink also has open, already belongs to the new round. The log file still has the
    previous round.
    """
    path = tmp_path / "gateway.db"
    with closing(sqlite3.connect(path)) as gateway, closing(sqlite3.connect(path)) as uplink:
        gateway.execute("PRAGMA journal_mode=WAL")
        gateway.execute("CREATE TABLE t (x)")
        for number in range(9):
            with gateway:
                gateway.execute("INSERT INTO t VALUES (?)", (number,))
        uplink.execute("SELECT count(*) FROM t").fetchone()
        gateway.execute("PRAGMA wal_checkpoint(FULL)")
        log = tmp_path / "gateway.db-wal"
        before = log.read_bytes()
        with gateway:
            gateway.execute("INSERT INTO t VALUES (9)")
        assert log.read_bytes()[:32] != before[:32], "the log has begun again"
        log.write_bytes(before)
        assert wal.damage(path) is None


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Yield the path of an open database with ten commits in its log."""
    path = tmp_path / "gateway.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (x)")
        for number in range(9):
            with database:
                database.execute("INSERT INTO t VALUES (?)", (number,))
        yield path


@pytest.mark.parametrize("at", [0, 8, 16, 24])
def test_log_with_a_damaged_header_has_lost_its_commits(path: Path, at: int) -> None:
    """SQLite takes such a log for an empty one. at: offset of the damaged byte."""
    assert wal.damage(path) is None
    log = path.with_name(f"{path.name}-wal")
    data = bytearray(log.read_bytes())
    data[at] ^= 1
    log.write_bytes(data)
    assert wal.damage(path) == "the log's header is damaged"
    log.write_bytes(data[:32] + bytes(len(data) - 32))
    assert wal.damage(path) is None, "there is nothing behind the header"


def test_frames_that_come_during_the_check_are_no_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of valid frames is read before the log, and another program may commit between."""
    look, looks = wal._look, list[int]()

    def look_late(log: Path, frames: int, salt: bytes) -> str | None:
        looks.append(frames)
        if len(looks) == 1:
            with closing(sqlite3.connect(path)) as uplink:
                for number in range(5):
                    with uplink:
                        uplink.execute("INSERT INTO t VALUES (?)", (number,))
                found = look(log, frames, salt)
                assert found is not None
                assert "5 commits cannot be read" in found
                return found
        return look(log, frames, salt)

    monkeypatch.setattr(wal, "_look", look_late)
    assert wal.damage(path) is None
    assert looks[1] > looks[0]


def test_log_of_a_closed_database_is_not_looked_at(tmp_path: Path) -> None:
    """The check uses SQLite's own descriptor, so it refuses to go without one."""
    path = tmp_path / "gateway.db"
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).touch()
    with pytest.raises(FileNotFoundError, match=r"gateway\.db-shm is not open"):
        wal.damage(path)
