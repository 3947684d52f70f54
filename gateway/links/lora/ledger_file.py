"""The ledgers of one radio on the disk, so that a restart does not give it a second hour.

In: transmissions, and the bytes that lay in the file. Out: ledgers, and bytes for the file.
Sans-IO: the caller writes them with `write`, off its event loop.

A card does not want a write for each frame. So the file holds a **reservation**: airtime that may
be sent without another write, a 64th of the limit. After a start, all that was reserved counts as
sent just now. After a reboot of the machine nobody knows how long it was off: it counts as no time.
A file that cannot be read counts as an hour that is used up. So does an older copy that was put
back: each write has a number, and a second file (`….count`) holds the newest one.
"""

import json
import logging
import os
from pathlib import Path
from typing import Any

from gateway.config.regions import Region
from gateway.links.lora.duty import BLOCKS, Ledger
from gateway.system.sync import sync

_PARTS = 64
LATE = 1.0
"""Seconds that a modem takes at most until it sends what it was given; after that it has failed."""

_LONG = 1e10
"""Seconds; no machine runs longer."""
_AHEAD = 16.0
"""Seconds. No frame takes so long."""

_log = logging.getLogger(__name__)


class Ledgers:
    """What one radio has sent, by sub-band.

    machine: this start of the machine, another one after each reboot (the kernel's boot_id). now:
    seconds of a monotonic clock that goes on while the machine runs. found: what the file held,
    None if there is no file. newest: what `read_count` found; None: no such file is kept.
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
        """Number of the last write."""
        return self._count

    def ledger(self, band: str) -> Ledger:
        """The ledger of a sub-band; to look at. Raises KeyError: the region has none such."""
        return self._ledgers[band]

    def granted(self, band: str) -> float:
        """Return the seconds that may be sent before the file has to be written again."""
        return self._granted[band]

    def low(self, band: str) -> bool:
        """It is time to write the file, before frames have to wait for it."""
        return self._granted[band] < self._part(band) / 2

    def spend(self, band: str, airtime: float, start: float) -> None:
        """Note a transmission of so many seconds. Raises ValueError: so much was not granted, or
        the law does not allow it at this moment.
        """
        if airtime > self._granted[band]:
            raise ValueError(f"{airtime} s, and {self._granted[band]} s are granted")
        if wait := self._ledgers[band].wait(airtime, start):
            raise ValueError(f"{airtime} s, which the law allows in {wait} s only")
        self._granted[band] -= airtime
        self._ledgers[band].add(airtime, start)

    def ask(self, band: str, airtime: float, now: float) -> bytes:
        """Return what the file has to hold so that a transmission of so many seconds, and some
        more, are granted. Call `grant` when it is on the disk.
        """
        more = max(airtime + self._part(band) - self._granted[band], 0.0)
        self._asked = band, more
        bands = {
            name: {"reserved": self._granted[name], "sent": ledger.blocks(now)}
            for name, ledger in self._ledgers.items()
        }
        bands[band]["reserved"] = self._granted[band] + more
        self._count += 1
        told = {"machine": self._machine, "count": self._count, "at": now, "bands": bands}
        return json.dumps(told, separators=(",", ":")).encode()

    def grant(self) -> None:
        """What `ask` returned last is on the disk. `spend` may have gone on meanwhile."""
        if self._asked is not None:
            band, more = self._asked
            self._granted[band] += more
            self._asked = None

    def _part(self, band: str) -> float:
        return self._ledgers[band].limit / _PARTS

    def _restore(self, found: bytes, now: float) -> None:
        try:
            told = json.loads(found)
            self._check_count(told.get("count", 0))
            away = now - _seconds(told["at"]) if told["machine"] == self._machine else 0.0
            blocks = {
                name: _blocks(told["bands"][name], max(away, 0.0))
                for name in self._ledgers
                if name in told["bands"]
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
                "the record of what the radio has sent cannot be read (%r): its hour counts as"
                " used up",
                error,
            )
            blocks = {name: [(0.0, ledger.limit)] for name, ledger in self._ledgers.items()}
        for name, entries in blocks.items():
            self._ledgers[name].restore(entries, now)

    def _check_count(self, count: int) -> None:
        """Raises ValueError: this is not the newest file. That of 0.2 has no count."""
        if self._newest is not None and (count < self._newest or (count and not self._newest)):
            raise ValueError(f"an older copy: write {count}, and {self._newest} was the newest")
        self._count = max(self._count, count)


def _seconds(value: Any) -> float:
    """Raises ValueError, TypeError: no time of 0 s or more."""
    seconds = float(value)
    if not 0 <= seconds < _LONG:
        raise ValueError(f"{value!r} is no number of seconds")
    return seconds


def _blocks(told: Any, away: float) -> list[tuple[float, float]]:
    """Age and airtime of each block; the reservation is the last one, of age 0. What was on the air
    when this was written had an end that was still to come.
    """
    if len(told["sent"]) > 2 * BLOCKS + 2:
        raise ValueError(f"{len(told['sent'])} blocks within an hour")
    blocks = [
        (_seconds(age + _AHEAD) - _AHEAD + away, _seconds(airtime)) for age, airtime in told["sent"]
    ]
    if blocks != sorted(blocks, reverse=True):
        raise ValueError("the blocks do not stand in the order of their times")
    last = min([0.0, *(age for age, _ in blocks[-1:])])
    return [*blocks, (last, _seconds(told["reserved"]))]


def read(file: Path) -> bytes | None:
    """Return what the file holds, None if there is none. Raises OSError: it cannot be read."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def read_count(file: Path) -> int:
    """Return the number of the newest write, 0 if none is known. Raises OSError."""
    try:
        return int(read(_count_of(file)) or b"0")
    except ValueError:
        return 0


def write(file: Path, data: bytes, count: int | None = None) -> None:
    """Put it on the disk, whole or not at all, and then its number. Raises OSError."""
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
