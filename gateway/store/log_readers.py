"""Programs that prevent SQLite from truncating the write-ahead log.

In: the path of a database. Out: the processes with a read mark on its log. A reader holds a shared
lock on a byte of the wal-index: the read mark for the part of the log that its snapshot needs
(https://sqlite.org/walformat.html#locks). The kernel lists such locks in /proc/locks.
"""

import os
from pathlib import Path

_FIRST, _LAST = 123, 127
"""First and last of the bytes in the wal-index (`-shm`) that SQLite's readers lock."""
_LOCKS = Path("/proc/locks")


def log_readers(path: Path) -> list[str]:
    """Return the processes with a read mark, as `process 1234 (sqlite3)`; empty if there is none,
    or if the locks cannot be read. path: the database.
    """
    try:
        inode = str(path.with_name(path.name + "-shm").stat().st_ino)
        lines = _LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    pids = {pid for line in lines if (pid := _pid(line.split(), inode)) is not None}
    return [_name(pid) for pid in sorted(pids)]


def _pid(words: list[str], inode: str) -> int | None:
    """Return the process id in a line of /proc/locks if the line is a read mark on this inode, else
    None. words: the words of the line.
    """
    if "->" in words or len(words) < 8 or words[3] != "READ":
        return None
    if words[5].rpartition(":")[2] != inode or not words[6].isdecimal():
        return None
    first, last = int(words[6]), words[7]
    if first > _LAST or (last.isdecimal() and int(last) < _FIRST):
        return None
    return int(words[4])


def _name(pid: int) -> str:
    if pid == os.getpid():
        return "this gateway itself"
    try:
        command = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        command = "name unknown"
    return f"process {pid} ({command})"
