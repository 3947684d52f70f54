"""Backups at the landing place.

In: the encrypted file of a backup. Out: the same file at the landing place, under a new name. Of
the older backups, only the newest stay.

A backup is `GATEWAY/backups/TIME-EPOCH.owback`. TIME is in UTC. EPOCH is the epoch of the store; a
restored store has another one. A large backup is written in pieces, because each piece is held in
memory. The first piece has the backup's name. The other pieces are `TIME-EPOCH.owback.001` and so
on, in the same folder. The first piece is written last, so a backup that has a first piece is
complete.

Older versions of Onceway called a backup `N.owback`, where N was the number of the day modulo
`keep`. A backup with such a name counts as older than any backup with a time.
"""

import io
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gateway.errors import OncewayError
from gateway.uplink.landing import Landing, Unreachable

FOLDER = "backups"
PIECE = 64_000_000
"""Size of a piece, in bytes. One piece is in memory at a time."""

_TIME = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"((?:\d{8}T\d{6}Z-[0-9a-f]{8}|\d+)\.owback)(?:\.\d{3,})?")


def put(landing: Landing, gateway: str, epoch: str, file: Path, now: datetime) -> str:
    """Write a backup and return its URL. If it raises OncewayError, no backup was added or
    removed, unless the landing place fails even when the unproven file is deleted.
    """
    landing.tidy(f"{gateway}/{FOLDER}")
    names = _names(landing, gateway)
    for piece, first in names.items():
        if (
            first not in names
        ):  # left by a backup that failed: pieces must not fill the landing place
            landing.discard(f"{gateway}/{FOLDER}/{piece}")
    name = f"{gateway}/{FOLDER}/{now.astimezone(UTC):{_TIME}}-{epoch}.owback"
    count = max(1, -(-file.stat().st_size // PIECE))
    with file.open("rb") as whole:
        for index in reversed(range(count)):
            whole.seek(index * PIECE)
            _put_piece(landing, f"{name}.{index:03}" if index else name, whole.read(PIECE))
    return f"{landing.url.rstrip('/')}/{name}"


def _put_piece(landing: Landing, name: str, data: bytes) -> None:
    created = landing.create(name, data)
    try:
        if landing.holds(name, data):  # also if an answer was lost, and the request was repeated
            return
        if not created:
            raise OncewayError(
                f"there is a backup {name} already", landing.url, "Try again in a second"
            )
        raise Unreachable(f"{name} was written, but reads back with other bytes", landing.url)
    except OncewayError:
        if created:  # it would count as a backup, and a good one would be deleted for it
            with suppress(OncewayError):
                landing.discard(name)
        raise


def _names(landing: Landing, gateway: str) -> dict[str, str]:
    """Return the names of all pieces of backups at the landing place, each with the name of its
    backup's first piece.
    """
    found = map(_NAME.fullmatch, landing.names_in(f"{gateway}/{FOLDER}"))
    return {match[0]: match[1] for match in found if match}


def remove_old(landing: Landing, gateway: str, keep: int, now: datetime) -> None:
    """Delete all backups except the newest `keep`, and all pieces whose first piece is missing.
    Raises Unreachable.

    A backup with a time in the future comes from a wrong clock, and counts as the oldest. Backups
    without a time in their names stay while fewer than `keep` have one.
    """
    folder = f"{gateway}/{FOLDER}"
    names = _names(landing, gateway)
    today = f"{now.astimezone(UTC):{_TIME}}~"
    whole = sorted(names.keys() & set(names.values()), key=lambda name: (name < today, name))
    timed = [name for name in whole if "-" in name]
    kept = timed[-keep:]
    if len(kept) < keep:
        kept += [name for name in whole if "-" not in name]
    for name in sorted(names):  # the first piece before the others
        if names[name] not in kept:
            landing.discard(f"{folder}/{name}")


class Pieces(io.RawIOBase):
    """A backup as one stream: the named file, then its other pieces in the same folder."""

    def __init__(self, first: Path) -> None:
        self._first, self._index = first, 0
        self._file: io.BufferedIOBase = io.BytesIO()  # closed by `close` if the file does not exist
        self._file = first.open("rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        while not (count := self._file.readinto(buffer)):
            self._index += 1
            following = self._first.with_name(f"{self._first.name}.{self._index:03}")
            if not following.exists():
                return 0
            self._file.close()
            self._file = following.open("rb")
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
