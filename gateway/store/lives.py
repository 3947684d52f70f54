"""Whether a store is the one that ran here last, or another life of it: a backup that was restored,
a card that was cloned, a new one in the place of one that is gone.

In: an open store at the gateway's start, and its folder. Out: in words, why it is another life.
What such a store knows of exchanges that were under way is stale: a packet identifier between
PUBLISH and PUBREL may stand for another message by now, which would be answered for and lost. So
the start forgets those identifiers (`recovery.py`). It forgets the marks of boards as well: when
somebody has copied the file while a gateway wrote it, a mark may be newer in it than the row of the
spool that it was committed with. And it ends the sessions of boards: one that goes on with its
session takes 0x92 for done if its PUBREL may have arrived before, and this store may lack that
publication. In a new session it publishes again what its journal holds. A publication that comes
again has the same identity in the table, if its sender gave it one; boards do.

What tells: `meta.restored`, which `onceway store backup` writes into the copy, and the uplink, when
the landing place holds batches of another life; the file `generation` beside the database, whose
word is also in `meta.generation` and changes while the gateway runs; and the serial number of the
machine, `meta.machine`.
"""

import os
import secrets
import sqlite3
from pathlib import Path
from time import monotonic

from gateway.system.sync import sync

NAME = "generation"
MARK = "restored"
EACH_S = 600.0
"""So old a copy of the database is known for one, also after a power cut."""

_SERIAL = Path("/sys/firmware/devicetree/base/serial-number")
"""Of a Raspberry Pi. Other machines tell theirs to root alone, or not at all."""


def another_life(database: sqlite3.Connection, folder: Path) -> str | None:
    """Why this store is not the one that ran here last; None when it is, or nothing tells."""
    mark, known, machine = (_get(database, key) for key in (MARK, "generation", "machine"))
    if mark is not None:
        return mark
    here = _read(folder)
    if here is not None and known is None and _get(database, "boot") is None:
        return "it is new, and the one that ran here is gone"
    if known is not None and here is None:
        return f"the file {NAME} is not beside it"
    if known is not None and here not in known.split():
        return f"the file {NAME} beside it belongs to another one"
    serial = serial_number()
    if None not in (machine, serial) and machine != serial:
        return f"it comes from another machine (serial number {machine}, not {serial})"
    return None


def settle(database: sqlite3.Connection) -> None:
    """Take this store for the one that runs here. In the transaction of the caller."""
    database.execute("DELETE FROM meta WHERE key = ?", (MARK,))
    if (serial := serial_number()) is not None:
        _put(database, "machine", serial)


def mark(database: sqlite3.Connection, why: str) -> None:
    """Let the next start know that this is another life."""
    _put(database, MARK, why)


def serial_number() -> str | None:
    """The machine's, None where it has none that a service may read."""
    try:
        return _SERIAL.read_text(encoding="ascii").strip("\0 \n") or None
    except (OSError, UnicodeDecodeError):
        return None


class Generation:
    """Changes the word in the database and in the file beside it. Used by one thread at a time."""

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        self._folder = folder
        self._database = database
        self._changed = monotonic()

    def look(self) -> None:
        """Change it when it is time to."""
        if monotonic() - self._changed >= EACH_S:
            self.change()

    def change(self) -> None:
        """Change it now. The database knows the word of the file before this and after it, so a
        power cut in between means nothing. Raises sqlite3.Error, OSError.
        """
        self._changed = monotonic()
        fresh = secrets.token_hex(8)
        _put(self._database, "generation", f"{fresh} {_read(self._folder) or ''}")
        new = self._folder / f"{NAME}.new"
        new.write_text(fresh, encoding="ascii")
        sync(new)
        os.replace(new, self._folder / NAME)
        sync(self._folder)


def word(folder: Path) -> str | None:
    """Of the store that ran in a folder last: its generation, which each start changes."""
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
