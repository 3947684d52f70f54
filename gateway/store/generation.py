"""Store generations. A start detects whether this is the store that ran here last, or another
generation: a restored backup, a cloned card, or a new store that replaces a lost one.

In: an open store at the gateway's start, and its folder. Out: the reason why this is another
generation, in words. A store of another generation has outdated facts about exchanges in flight, so
a start treats the store as follows:

- The packet identifiers between PUBLISH and PUBREL are forgotten (`recovery.py`). Each may belong
  to another message by now, which would be acknowledged and lost.
- The anti-replay windows of boards are forgotten. If a person copied the file while a gateway wrote
  it, a window may be newer than the spool row of the same commit.
- The sessions of boards end. In a continued session, a board treats 0x92 as success if its PUBREL
  may have arrived before, but this store may lack the publication. In a new session, the board
  publishes its journal again. Duplicates have the same identity in the table, if their sender gave
  them one, as boards do.

Four signs show another generation. `meta.restored` exists: `onceway store backup` writes it into
the copy, and the uplink writes it if the landing place holds batches of another generation. The
random word in the file `generation` beside the database is not in `meta.generation`, or one of the
two is missing. The word changes while the gateway runs. `meta.machine` is not the machine's serial
number. The write-ahead log of a run that did not end cleanly is gone (`run_marks.py`).
"""

import os
import secrets
import sqlite3
from pathlib import Path
from time import monotonic

from gateway.store.run_marks import was_stopped
from gateway.system.sync import sync

NAME = "generation"
MARK = "restored"
EACH_S = 600.0
"""Seconds between two changes of the generation word. If the database is replaced by a copy from
before the last change, a start finds another generation, even after a power cut.
"""

_SERIAL = Path("/sys/firmware/devicetree/base/serial-number")
"""Serial number of a Raspberry Pi. Other machines show their number to root only, or not at all."""


def why_other_generation(
    database: sqlite3.Connection, folder: Path, log_gone: str | None = None
) -> str | None:
    """Return why this is not the store that ran here last, as a sentence; None if no sign indicates
    another generation. log_gone: the sign that the write-ahead log is gone (`wal.vanished`). After
    a clean stop, the sign is ignored: SQLite has then copied the log into the database, and deleted
    it.
    """
    mark, known, machine = (_get(database, key) for key in (MARK, "generation", "machine"))
    if mark is not None:
        return mark
    beside = _read(folder)
    if beside is not None and known is None and _get(database, "boot") is None:
        return "the store is new, and the previous one is gone"
    if known is not None and beside is None:
        return f"the file {NAME} is missing beside the store"
    if known is not None and beside not in known.split():
        return f"the file {NAME} beside the store belongs to another store"
    serial = serial_number()
    if None not in (machine, serial) and machine != serial:
        return f"the store comes from another machine (serial number {machine}, not {serial})"
    if log_gone is not None and not was_stopped(database):
        return (
            f"the last run was not stopped, and its write-ahead log is gone ({log_gone}): commits"
            " that were acknowledged may be lost. The numbers of new spool rows begin higher, so"
            " that no number is used twice"
        )
    return None


def settle(database: sqlite3.Connection) -> None:
    """Register this store as the one that runs here. Call this inside a transaction."""
    database.execute("DELETE FROM meta WHERE key = ?", (MARK,))
    if (serial := serial_number()) is not None:
        _put(database, "machine", serial)


def mark(database: sqlite3.Connection, why: str) -> None:
    """Mark the store, so that the next start treats it as another generation. why: the reason, as a
    sentence.
    """
    _put(database, MARK, why)


def serial_number() -> str | None:
    """Return the machine's serial number; None if it cannot be read."""
    try:
        return _SERIAL.read_text(encoding="ascii").strip("\0 \n") or None
    except (OSError, UnicodeDecodeError):
        return None


class Generation:
    """The generation word in the database and in the file beside it. Only one thread at a time may
    use this object.
    """

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        self._folder = folder
        self._database = database
        self._changed = monotonic()

    def look(self) -> None:
        """Change the generation word if it is at least EACH_S seconds old. Raises sqlite3.Error,
        OSError.
        """
        if monotonic() - self._changed >= EACH_S:
            self.change()

    def change(self) -> None:
        """Change the generation word now. The database gets the new word beside the previous one,
        and then the file gets the new word, so a power cut between the two writes does no harm.
        Raises sqlite3.Error, OSError.
        """
        self._changed = monotonic()
        fresh = secrets.token_hex(8)
        _put(self._database, "generation", f"{fresh} {_read(self._folder) or ''}")
        new = self._folder / f"{NAME}.new"
        new.write_text(fresh, encoding="ascii")
        sync(new)
        os.replace(new, self._folder / NAME)
        sync(self._folder)


def last_generation(folder: Path) -> str | None:
    """Return the generation word of the store that ran last in a folder, or None. Each start
    changes the word.
    """
    return _read(folder)


def _read(folder: Path) -> str | None:
    try:
        return (folder / NAME).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _get(database: sqlite3.Connection, key: str) -> str | None:
    found = database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if found is None else str(found[0])


def _put(database: sqlite3.Connection, key: str, value: str) -> None:
    database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
