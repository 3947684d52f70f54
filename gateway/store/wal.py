"""Detection of commits that the write-ahead log has lost.

In: an opened database with its log. Out: the losses, in words. SQLite reads a log up to the first
frame with a wrong checksum, and treats the rest as a commit torn by a power cut. With
synchronous=FULL a power cut can tear only the last commit: each commit is on disk before the next
one begins. If more than one complete commit follows that frame, or the log's header is wrong, the
cause was not a power cut, and acknowledged data is lost. The format:
https://www.sqlite.org/fileformat2.html#walformat.
"""

import contextlib
import os
import struct
from pathlib import Path

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">4I")
FRAME_BYTES = 24
"""Size, in bytes, of the header before each page in the log."""
_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}
_INDEX = struct.Struct("=16xI12x8s")
_COPIED = struct.Struct("=16xI76xI")
_SALT = slice(16, 24)


def orphaned(path: Path) -> str | None:
    """Return the damage, in words, if the log exists without its database; else None. Call this
    before SQLite opens the database, because SQLite would delete the log and begin an empty store.
    """
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size and not (path.exists() and path.stat().st_size):
        return "the write-ahead log exists, but the database is empty or gone"
    return None


def vanished(path: Path) -> str | None:
    """Return a sentence that shows that the log is gone, or None if nothing shows it. Call this
    before SQLite opens the database, after a run that was not stopped cleanly: SQLite would
    silently begin an empty log.

    The log's index (`-shm`) outlives a killed process. The last program that closes the database
    cleanly copies the log into the database, and deletes the log and the index. If the index is
    empty, it was made after such a close (`leave_log`).
    """
    log, index = path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")
    size = log.stat().st_size if log.exists() else 0
    if size > _HEADER.size + FRAME_BYTES:
        return None
    try:
        data = index.read_bytes()[: _INDEX.size]
    except FileNotFoundError:
        return (
            "the write-ahead log and its index are missing: lost, or deleted by another program"
            " that used the database"
        )
    frames = _INDEX.unpack(data)[0] if len(data) == _INDEX.size else 0
    return (
        f"the index of the write-ahead log names {frames} frames, but the log has {size} bytes"
        if frames
        else None
    )


def damage(path: Path) -> str | None:
    """Return the damage of the log, in words, or None. path: the database. This process must have
    the database open; other programs may write meanwhile.
    """
    log, index = path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")
    if not (log.exists() and index.exists()):
        return None
    while True:
        before = _noted(index)
        found = _look(log, *before)
        if found is None or _noted(index) == before:
            return found


def _look(log: Path, frames: int, salt: bytes) -> str | None:
    """Return the damage after the valid frames, in words, or None. frames: number of the last frame
    that SQLite considers complete. salt: the log's salt, which changes whenever SQLite writes the
    log from its beginning again.
    """
    with log.open("rb") as file:
        start = file.read(_HEADER.size)
        if len(start) < _HEADER.size:
            return None
        magic, _, page, _, *salts, _, _ = _HEADER.unpack(start)
        if magic not in _MAGIC or _checksum(start[:24], _MAGIC[magic]) != _HEADER.unpack(start)[6:]:
            return "the log's header is damaged" if file.read(FRAME_BYTES).strip(b"\0") else None
        if start[_SALT] != salt:
            # all frames are in the database: the writer was killed at the beginning of the next
            # round
            return None
        commits, at = 0, _HEADER.size + frames * (page + FRAME_BYTES)
        while file.seek(at) and len(head := file.read(_FRAME.size)) == _FRAME.size:
            _, size, *mark = _FRAME.unpack(head)
            commits += mark == salts and size > 0
            at += page + FRAME_BYTES
    return (
        f"the log is damaged after frame {frames}: {commits} commits cannot be read"
        if commits > 1
        else None
    )


def _noted(index: Path) -> tuple[int, bytes]:
    """Return the number of the last valid frame, and the salt, as SQLite records them in the index
    for all users of the database (https://www.sqlite.org/walformat.html#the_wal_index_header).

    The read uses SQLite's own descriptor. Closing another descriptor would drop every lock of this
    process on the file (fcntl(2)), including SQLite's. The next program to open the database would
    conclude that it is the only one, and truncate the index in use.
    """
    data = os.pread(_descriptor(index), _INDEX.size, 0)
    frames, salt = _INDEX.unpack(data) if len(data) == _INDEX.size else (0, b"")
    return int(frames), bytes(salt)


class Index:
    """The wal-index of a database: SQLite's shared-memory file about the write-ahead log. It is
    read through SQLite's own descriptor (see `_noted`), so this process must keep the database open
    as long as it uses this object.
    """

    def __init__(self, path: Path) -> None:
        self._file = _descriptor(path.with_name(path.name + "-shm"))

    def look(self) -> tuple[int, int]:
        """Return the number of frames in the log, and the number of them that are copied to the
        database.
        """
        data = os.pread(self._file, _COPIED.size, 0)
        frames, copied = _COPIED.unpack(data) if len(data) == _COPIED.size else (0, 0)
        return int(frames), int(copied)


def _descriptor(path: Path) -> int:
    """Return a descriptor with which this process has a file open (proc(5)). Raises
    FileNotFoundError if the file is not open.
    """
    wanted = path.stat()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of this listing is closed
            if os.path.samestat(os.fstat(int(name)), wanted):
                return int(name)
    raise FileNotFoundError(f"{path} is not open")


def _checksum(data: bytes, order: str) -> tuple[int, int]:
    first = second = 0
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFF_FFFF
        second = (second + odd + first) & 0xFFFF_FFFF
    return first, second
