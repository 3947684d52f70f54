"""The ledgers of one radio on disk, so that earlier airtime still counts after a restart.

In: transmissions, and the old contents of the file. Out: ledgers, and bytes for the file. Sans-IO:
the caller writes them with `write`, off its event loop.

To avoid a write for each frame, the file holds a **reservation**: airtime that may be sent without
another write, a 64th of the limit. After a start, the whole reservation counts as sent just now.
After a reboot of the machine the time in between is unknown and counts as zero. If the file is
unreadable, or an older copy was put back, the whole hour counts as used. An older copy is detected
by its number: each write has a number, and a second file (`….count`) has the newest number.
"""

import json
import logging
import os
from pathlib import Path
from typing import Any

from gateway.links.lora.duty import BLOCKS, Ledger
from gateway.system.regions import Region
from gateway.system.sync import sync

_PARTS = 64
LATE = 1.0
"""Longest time, in seconds, until a modem begins to send a frame. If it has not begun by then, the
frame counts as failed.
"""

_LONG = 1e10
"""Upper bound, in seconds, for a time in the file. No machine runs this long without a reboot."""
_AHEAD = 16.0
"""Upper bound, in seconds, for the airtime of a frame. A transmission may end at most this long
after the file was written.
"""

_log = logging.getLogger(__name__)


class Ledgers:
    """The ledgers of one radio, by sub-band. machine: identifies this start of the machine, and
    changes with each reboot (the kernel's boot_id). now: seconds of a monotonic clock that runs
    while the machine does. found: the file's contents; None if there is no file. newest: the result
    of `read_count`; None if the number of the newest write is not kept.
    """

    def __init__(
        self,
        region: Region,
        machine: str,
        found: bytes | None,
        now: float,
        newest: int | None = None,
    ) -> None:
        self._machine = machine
        self._newest = newest
        self._count = newest or 0
        self._ledgers = {band.name: Ledger(band.duty, region.hour, LATE) for band in region.bands}
        self._granted = dict.fromkeys(self._ledgers, 0.0)
        self._asked: tuple[str, float] | None = None
        if found is not None or newest:
            self._restore(found or b"", now)

    @property
    def count(self) -> int:
        """Number of the newest contents from `ask`; each call of `ask` adds 1."""
        return self._count

    def ledger(self, band: str) -> Ledger:
        """Return the ledger of a sub-band, for reading. Raises KeyError if the region lacks it."""
        return self._ledgers[band]

    def granted(self, band: str) -> float:
        """Return the airtime, in seconds, that may be sent before the file has to be written
        again.
        """
        return self._granted[band]

    def low(self, band: str) -> bool:
        """Whether the granted airtime runs low, so that the ledgers should be written now.
        Otherwise a frame would soon have to wait for the write.
        """
        return self._granted[band] < self._part(band) / 2

    def spend(self, band: str, airtime: float, start: float) -> None:
        """Note a transmission of `airtime` seconds. Raises ValueError if this airtime was not
        granted, or if the legal limit does not allow the transmission now.
        """
        if airtime > self._granted[band]:
            granted = f"the {self._granted[band]:.3f} s that the file still grants"
            raise ValueError(f"a transmission takes {airtime:.3f} s, more than {granted}")
        if wait := self._ledgers[band].wait(airtime, start):
            raise ValueError(
                f"the law allows a transmission of {airtime:.3f} s only {wait:.3f} s later"
            )
        self._granted[band] -= airtime
        self._ledgers[band].add(airtime, start)

    def ask(self, band: str, airtime: float, now: float) -> bytes:
        """Return new contents for the file. They reserve `airtime` seconds for this frame, and 1 /
        _PARTS of the band's limit for later frames. Call `grant` when the contents are on disk.
        """
        more = max(airtime + self._part(band) - self._granted[band], 0.0)
        self._asked = band, more
        bands = {
            name: {"reserved": self._granted[name], "sent": ledger.blocks(now)}
            for name, ledger in self._ledgers.items()
        }
        bands[band]["reserved"] = self._granted[band] + more
        self._count += 1
        content = {"machine": self._machine, "count": self._count, "at": now, "bands": bands}
        return json.dumps(content, separators=(",", ":")).encode()

    def grant(self) -> None:
        """Grant the airtime that the last contents from `ask` reserve. Call this when the contents
        are on disk. `spend` may have been called in between.
        """
        if self._asked is not None:
            band, more = self._asked
            self._granted[band] += more
            self._asked = None

    def _part(self, band: str) -> float:
        return self._ledgers[band].limit / _PARTS

    def _restore(self, found: bytes, now: float) -> None:
        try:
            content = json.loads(found)
            self._check_count(content.get("count", 0))
            away = now - _seconds(content["at"]) if content["machine"] == self._machine else 0.0
            blocks = {
                name: _blocks(content["bands"][name], max(away, 0.0))
                for name in self._ledgers
                if name in content["bands"]
            }
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            _log.warning(
                "the record of the radio's airtime cannot be read (%r): the airtime of a whole hour"
                " counts as used",
                error,
            )
            blocks = {name: [(0.0, ledger.limit)] for name, ledger in self._ledgers.items()}
        for name, entries in blocks.items():
            self._ledgers[name].restore(entries, now)

    def _check_count(self, count: int) -> None:
        """Raise ValueError if the file with this count is older than the newest file. A file of
        version 0.2 has no count: `count` is then 0.
        """
        if self._newest is not None and (count < self._newest or (count and not self._newest)):
            text = (
                f"the file is an older copy: its number is {count}, the newest was {self._newest}"
            )
            raise ValueError(text)
        self._count = max(self._count, count)


def _seconds(value: Any) -> float:
    """Return a value of the file as seconds. Raises ValueError or TypeError if it is not a number
    of seconds from 0 to `_LONG`.
    """
    seconds = float(value)
    if not 0 <= seconds < _LONG:
        raise ValueError(f"{value!r} is not a number of seconds")
    return seconds


def _blocks(band: Any, away: float) -> list[tuple[float, float]]:
    """Return the age and the airtime of each block of a sub-band, in seconds, the oldest first.
    away: seconds since the file was written. A transmission in progress at the time of writing may
    have a negative age. The reservation is the last block: its age is 0, or the negative age of the
    block before it. Raises ValueError.
    """
    if len(band["sent"]) > 2 * BLOCKS + 2:
        raise ValueError(f"{len(band['sent'])} blocks, more than an hour can have")
    blocks = [
        (_seconds(age + _AHEAD) - _AHEAD + away, _seconds(airtime)) for age, airtime in band["sent"]
    ]
    if blocks != sorted(blocks, reverse=True):
        raise ValueError("the blocks are not in the order of their times")
    last = min([0.0, *(age for age, _ in blocks[-1:])])
    return [*blocks, (last, _seconds(band["reserved"]))]


def read(file: Path) -> bytes | None:
    """Return the contents of the file, or None if there is none. Raises OSError."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def read_count(file: Path) -> int:
    """Return the number of the newest `write` of a file, 0 if unknown. Raises OSError."""
    try:
        return int(read(_count_of(file)) or b"0")
    except ValueError:
        return 0


def write(file: Path, data: bytes, count: int | None = None) -> None:
    """Write the file atomically. If `count` is given, it is the number of this write: write it then
    to the file's `.count` file. Raises OSError.
    """
    _replace(file, data)
    if count is not None:
        _replace(_count_of(file), str(count).encode())


def _count_of(file: Path) -> Path:
    return file.with_suffix(".count")


def _replace(file: Path, data: bytes) -> None:
    new = file.with_name(file.name + ".new")
    with new.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)
    sync(file.parent)
