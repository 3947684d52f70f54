"""The note on the last backup at the landing place: `DATA/backup.json`.

In: the beginning and the end of each run of `onceway backup --to-landing`. Out: for the running
gateway, the result of the last run, and its problem as a sentence.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, ValidationError

from gateway.system.lock import holder
from gateway.system.sync import sync

FILE, LOCK = "backup.json", "backup.lock"
LATE_S = 8 * 86_400
"""Largest age of the last backup, in seconds, if a systemd timer makes backups: a week and a day,
because some timers run once a week.
"""
AHEAD_US = 60_000_000
"""Largest time, in µs, by which a backup may be newer than the clock without a problem: the clock
may have been set back a little.
"""
_OF_SYSTEMD = "INVOCATION_ID"
"""The environment variable that systemd sets in each of its services (systemd.exec(5))."""


@dataclass(frozen=True, slots=True)
class LastBackup:
    """The note on the last backup run. Times are µs UTC.

    began, ended: times of the last run; `ended` is None while the run continues, or if it was
    killed. error: the error of the last run that ended; None if that run succeeded. landed: when
    the last successful run began, or None. where: URL of the backup of the last successful run.
    timed: whether systemd started the last run.
    """

    began: int
    ended: int | None = None
    error: str | None = None
    landed: int | None = None
    where: str | None = None
    timed: bool = False

    def begin(self, data: Path) -> Self:
        """Note in the data directory that a backup begins. Return the new note."""
        return replace(
            self, began=time.time_ns() // 1000, ended=None, timed=_OF_SYSTEMD in os.environ
        )._written(data)

    def succeed(self, data: Path, where: str) -> Self:
        """Note in the data directory that the backup is at the landing place, and that the run has
        ended. Return the new note.
        """
        now = time.time_ns() // 1000
        return replace(self, ended=now, error=None, landed=self.began, where=where)._written(data)

    def fail(self, data: Path, error: str) -> Self:
        """Note in the data directory that the run has ended with an error. Return the new note."""
        return replace(self, ended=time.time_ns() // 1000, error=error)._written(data)

    def _written(self, data: Path) -> Self:
        """Write the note to its file, and return it. A symbolic link in place of the file is
        replaced, not followed. If root writes, the file gets the owner of the data directory.
        """
        new = data / f"{FILE}.new"
        new.unlink(missing_ok=True)
        with new.open("x", encoding="utf8") as file:
            json.dump(asdict(self), file)
            os.fchmod(file.fileno(), 0o640)
            if os.geteuid() == 0:
                owner = data.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        sync(new)
        os.replace(new, data / FILE)
        return self

    def problem(self, data: Path, utc: int | None) -> str | None:
        """Return the problem of the last backup, or None. utc: the time in µs, None if it is not
        known.
        """
        landed = self.landed is not None
        good = f"the last good backup: {self._landed}" if landed else "there is no backup yet"
        if self.ended is None and holder(data / LOCK) is None:
            return f"the backup that began on {_moment(self.began)} did not end; {good}"
        if self.error is not None:
            return f"the last backup failed: {self.error}; {good}"
        if not self.timed or self.landed is None or utc is None:
            return None
        if self.landed - utc > AHEAD_US:
            return f"the last backup has a time in the future: the clock was or is wrong; {good}"
        if utc - self.landed > LATE_S * 1_000_000:
            days = (utc - self.landed) // 86_400_000_000
            return f"no backup has been made for {days} days; {good}"
        return None

    @property
    def _landed(self) -> str:
        return _moment(self.landed or 0)


def last_backup(data: Path) -> LastBackup | None:
    """Return the note about the last backup of a data directory; None without a readable note."""
    with suppress(OSError):
        return _read(data / FILE, (data / FILE).stat().st_mtime_ns)
    return None


@lru_cache(maxsize=4)
def _read(file: Path, _changed_ns: int) -> LastBackup | None:
    """Read a note. The result is cached until the file changes, because the gateway reads it each
    second.
    """
    try:
        return TypeAdapter(LastBackup).validate_json(file.read_bytes())
    except ValidationError:
        return None


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M} UTC"
