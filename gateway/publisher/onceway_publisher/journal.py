"""The journal of a publisher: an SQLite file that keeps each message until the gateway has it.

In: messages, and the keys of messages that the gateway has. Out: messages with incarnation and
sequence, which are on disk (WAL, synchronous=FULL) before they are sent.

One process has a journal open: SQLite's exclusive lock holds until the process ends, however it
ends. A sequence is never used twice within an incarnation, so a journal that was restored to an
older state needs a new incarnation. At each start the journal and the small file beside it
(`.place`) get the same random token, and the journal stores the machine's id and the file's inode.
If one of the three differs at the next start, the journal was copied or restored, and new messages
get a new incarnation. Messages that wait in the journal keep their incarnation and sequence: each
is in the table once, even if two machines send it. While a start is not on disk, `.place` has the
tokens of this start and of the last start, so that a power cut does not count as a copy.
"""

import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceway_publisher.errors import JournalError, JournalLocked
from onceway_publisher.flow import Message

if TYPE_CHECKING:
    from sqlite_utils import Database

LAST_SEQUENCE = 0xFFFF_FFFF
_MACHINE = Path("/etc/machine-id")
_COLUMNS = "incarnation, sequence, topic, payload, retain"


def _first(database: "Database") -> None:
    about = {"id": int, "device": str, "incarnation": int, "sequence": int, "place": str}
    database.table("journal").create(about | {"token": str}, pk="id", strict=True)
    columns = {"incarnation": int, "sequence": int, "topic": str, "payload": bytes, "retain": int}
    key = ("incarnation", "sequence")
    database.table("messages").create(columns, pk=key, not_null=set(columns), strict=True)


MIGRATIONS: tuple[Callable[["Database"], None], ...] = (_first,)
"""Changes of the schema, in order. PRAGMA user_version of a file is the number of changes that the
file has received.
"""


class Journal:
    """An open journal. waiting: the messages that the gateway did not have when the file was
    opened, in the order in which they were added. copied: whether the file was copied or restored
    after its last use.
    """

    waiting: list[Message]
    copied: bool

    def __init__(self, path: Path, device: str, incarnation: int | None = None) -> None:
        """Open or create a journal. incarnation: incarnation of a new file; None for a random
        number. Raises JournalError.
        """
        self._path = path
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(
                path, timeout=0.2, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._error(error) from error
        try:
            self._open(device, incarnation)
        except (sqlite3.Error, OSError) as error:
            self._connection.close()
            raise self._error(error) from error
        except BaseException:
            self._connection.close()
            raise

    def _open(self, device: str, incarnation: int | None) -> None:
        run = self._connection.execute
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            run(f"PRAGMA {pragma}")
        run("PRAGMA fullfsync=1")
        run("BEGIN EXCLUSIVE")
        version = run("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise JournalError(
                f"{self._path}: a newer onceway-publisher has written this journal. Install that"
                " version again"
            )
        if not version and run("SELECT 1 FROM sqlite_master").fetchone():
            raise JournalError(f"{self._path}: this is another program's database")
        if version < len(MIGRATIONS):
            from sqlite_utils import Database  # 0.1 s, which only a new journal needs

            for migrate in MIGRATIONS[version:]:
                migrate(Database(self._connection, execute_plugins=False))
        run(f"PRAGMA user_version={len(MIGRATIONS)}")
        token = self._begin(device, incarnation)
        run("COMMIT")
        _keep(self._beside, token)
        rows = run(f"SELECT {_COLUMNS} FROM messages ORDER BY rowid")  # noqa: S608
        self.waiting = [Message(*row) for row in rows]

    @property
    def _beside(self) -> Path:
        return self._path.with_name(f"{self._path.name}.place")

    def _begin(self, device: str, incarnation: int | None) -> str:
        """Record the start of this process, and set `copied`, `incarnation` and `sequence`. Return
        the token of this start.
        """
        run, place, token = self._connection.execute, self._place(), secrets.token_hex(16)
        found = run("SELECT device, incarnation, sequence, place, token FROM journal").fetchone()
        self.copied = False
        if found is None:
            self.incarnation, self.sequence = incarnation or _any_incarnation(), 0
        else:
            if found[0] != device:
                raise JournalError(
                    f"{self._path}: this journal belongs to the device {found[0]!r}, not to"
                    f" {device!r}. Give each device a journal of its own"
                )
            self.incarnation, self.sequence = found[1:3]
            self.copied = found[3] != place or found[4] not in _read(self._beside).split()
            if self.copied:
                self.incarnation, self.sequence = _any_incarnation(), 0
        row = device, self.incarnation, self.sequence, place, token
        run("INSERT OR REPLACE INTO journal VALUES (1, ?, ?, ?, ?, ?)", row)
        _keep(self._beside, token if found is None else f"{found[4]} {token}")
        return token

    def _place(self) -> str:
        """Return a text that differs between the journal's file and a copy of this file: the
        machine's id and the file's inode.
        """
        return f"{_read(_MACHINE)} {os.stat(self._path).st_ino}"

    def write(
        self, new: Iterable[tuple[str, bytes, bool]], accepted: Iterable[tuple[int, int]]
    ) -> list[Message]:
        """Add messages, and delete messages that the gateway has. accepted: incarnation and
        sequence of each message to delete. Return the added messages, with their numbers. On return
        all changes are on disk. If it raises JournalError, nothing was changed.
        """
        run = self._connection.execute
        with self._lock:
            incarnation, sequence = self.incarnation, self.sequence
            messages = []
            for topic, payload, retain in new:
                if sequence == LAST_SEQUENCE:
                    incarnation, sequence = _any_incarnation(), 0
                sequence += 1
                messages.append(Message(incarnation, sequence, topic, payload, retain))
            try:
                run("BEGIN IMMEDIATE")
                self._write(messages, accepted, (incarnation, sequence))
                run("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    run("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise self._error(error) from error
                raise
            self.incarnation, self.sequence = incarnation, sequence
            return messages

    def _write(
        self, new: list[Message], accepted: Iterable[tuple[int, int]], last: tuple[int, int]
    ) -> None:
        many = self._connection.executemany
        many("DELETE FROM messages WHERE incarnation = ? AND sequence = ?", accepted)
        if new:
            rows: list[tuple[Any, ...]] = [
                (one.incarnation, one.sequence, one.topic, one.payload, one.retain) for one in new
            ]
            many(f"INSERT INTO messages ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", rows)  # noqa: S608
            self._connection.execute("UPDATE journal SET incarnation = ?, sequence = ?", last)

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()

    def _error(self, error: sqlite3.Error | OSError) -> JournalError:
        text = str(error)
        if "locked" in text:
            return JournalLocked(
                f"{self._path}: another process has this journal open. Give each process a journal"
                " and a device of its own"
            )
        if "not a database" in text or "malformed" in text:
            text += ". Move the file away; the messages that it kept are lost"
        elif "unable to open" in text:
            text += ". Create the folder, or give this account the right to write there"
        elif "readonly" in text or "I/O" in text:
            text += ". See whether the disk is mounted read-only or fails (`dmesg`)"
        elif "full" in text:
            text += ". Free some space; this message was not stored"
        return JournalError(f"{self._path}: {text}")


def _any_incarnation() -> int:
    return secrets.randbelow(LAST_SEQUENCE) + 1


def _keep(path: Path, text: str) -> None:
    """Replace a file, and wait until it is on disk. A failure is ignored: without the file, the
    next start uses a new incarnation.
    """
    new = path.with_name(f"{path.name}.new")
    with suppress(OSError):
        with new.open("w", encoding="utf8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf8", errors="replace").strip()
    except OSError:
        return ""
