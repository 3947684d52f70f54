"""Looking at the log of an open database leaves SQLite's locks on it: the next process to open it
must not take it for its own.
"""

import sqlite3
import subprocess
import sys
from pathlib import Path

from gateway.store import wal

# byte of the index that everyone who has the database open keeps locked (SQLite, os_unix.c)
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
