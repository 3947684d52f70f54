"""A check of the log does not release SQLite's locks on an open database. Without the locks, the
next process that opens the database would believe that it is the only one.
"""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

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
