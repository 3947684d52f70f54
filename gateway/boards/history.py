"""The last readings of each registered board, for `onceway readings`.

In: readings as they arrive. Out: for each name of a reading, the last reading and the last POINTS
numbers (a day at one a minute). `DATA/history.json` is written at a clean stop only: a power cut
loses this history, but no acknowledged reading. The table at the centre has all readings.

A reading that arrives before the clock is synchronised gets a time on the broker's time axis, from
which its age is computed. Its UTC is computed from this time when the clock is synchronised.
"""

from __future__ import annotations

import json
import logging
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.payload.readings import Reading, iso

log = logging.getLogger(__name__)

FILE = "history.json"
POINTS = 1500
"""Number of newest values that are kept for one name of one board; each takes 16 bytes."""
MOST = 1000
"""Largest number of names of all boards together. With POINTS values each, they take 24 MB."""
_SPARE = 100
"""Values beyond POINTS are dropped together: the `_SPARE` oldest values of a series, as soon as
there are `_SPARE` values too many.
"""

Row = dict[str, Any]


@dataclass(slots=True)
class _Series:
    """The readings of one board under one name. unit, value, time: the last reading. times, values:
    the numeric readings. A time is in µs since 1970; a negative time is on the time axis
    (`_on_axis`).
    """

    unit: str | None = None
    value: Any = None
    time: int | None = None
    times: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def take(self, reading: Reading, now: float) -> None:
        self.unit, self.value = reading.unit, reading.value
        self.time = reading.time if reading.time is not None else reading.received
        if self.time is None or self.time < 0:
            self.time = _on_axis(now)
        if isinstance(reading.value, str):
            return
        self.times.append(self.time)
        self.values.append(float(reading.value))
        if len(self.times) >= POINTS + _SPARE:
            del self.times[:_SPARE], self.values[:_SPARE]


class History:
    """The last readings of all boards. folder: the data directory."""

    def __init__(self, folder: Path) -> None:
        self.clock: Callable[[], tuple[float, int | None]] = lambda: (0.0, None)
        """Returns the present time twice: in seconds on the time axis, and in µs since 1970, or
        None if that is unknown.
        """
        self._file = folder / FILE
        self._boards = _read(self._file)
        self._new = False

    def take(self, device: str, readings: Iterable[Reading]) -> None:
        """Keep the readings of a board, except readings in a status. Readings under new names are
        dropped if there are MOST names already.
        """
        for reading in readings:
            if reading.status:
                continue
            names = self._boards.get(device, {})
            series = names.get(reading.name)
            if series is None:
                if sum(map(len, self._boards.values())) >= MOST:
                    continue
                series = self._boards.setdefault(device, {})[reading.name] = _Series()
            series.take(reading, self.clock()[0])
            self._new = True

    def forget(self, wanted: Iterable[str]) -> None:
        """Drop the readings of all boards except the boards in `wanted`."""
        for name in self._boards.keys() - set(wanted):
            del self._boards[name]
            self._new = True

    def last(self, device: str) -> Iterator[Row]:
        """Yield the last reading of each series (`_Series`) of a board. device: the board; empty
        for all boards.
        """
        for board, name, series in self._series(device):
            yield self._row(board, name, series.time, series.value, series.unit)

    def since(self, device: str, seconds: float) -> Iterator[Row]:
        """Yield the numeric readings of the last `seconds`, sorted by board, name and time. A
        reading of unknown age is left out. device: empty for all boards.
        """
        for board, name, series in self._series(device):
            points = [
                (-age, time, value)
                for time, value in zip(series.times, series.values, strict=True)
                if (age := self.age(time)) is not None and age <= seconds
            ]
            for _, time, value in sorted(points):
                yield self._row(board, name, time, value, series.unit)

    def begins(self, device: str) -> int | None:
        """Return the time from which on all readings of a board are kept, in the form of
        `_Series.times`; None if no reading has a known age. device: empty for all boards.
        """
        known = [
            max(
                (time for time in series.times if self.age(time) is not None),
                key=lambda time: self.age(time) or 0.0,
                default=None,
            )
            for _, _, series in self._series(device)
        ]
        found = [time for time in known if time is not None]
        return min(found, key=lambda time: self.age(time) or 0.0, default=None)

    def age(self, time: int) -> float | None:
        """Return the age, in seconds, of a time in the form of `_Series.times`; None for a time in
        UTC while the clock is not known.
        """
        now, utc = self.clock()
        if time < 0:
            return now - _off_axis(time)
        return None if utc is None else (utc - time) / 1e6

    def utc(self, time: int | None) -> int | None:
        """Return a time in µs since 1970; None if the UTC is unknown. time: in the form of
        `_Series.times`.
        """
        if time is None or time >= 0:
            return time
        now, utc = self.clock()
        return None if utc is None else utc - round((now - _off_axis(time)) * 1e6)

    def _row(self, board: str, name: str, time: int | None, value: Any, unit: str | None) -> Row:
        row = {"device": board, "name": name, "time": iso(self.utc(time)), "value": value}
        age = None if time is None else self.age(time)
        return row | {"unit": unit, "ago_s": None if age is None else round(age, 1)}

    def _series(self, device: str) -> Iterator[tuple[str, str, _Series]]:
        for board, names in sorted(self._boards.items()):  # a list: readings may arrive meanwhile
            if device in ("", board):
                yield from [(board, name, series) for name, series in names.items()]

    def write(self) -> None:
        """Write the history to its file if it has changed. Any thread may call this method."""
        if not self._new:
            return
        rows = {
            board: {name: self._kept(one) for name, one in names.items()}
            for board, names in self._boards.items()
        }
        new = self._file.with_suffix(".new")
        try:
            new.write_text(json.dumps(rows))
            os.replace(new, self._file)
        except OSError as error:
            log.error("%s: cannot write the last readings (%s)", self._file, error.strerror)

    def _kept(self, one: _Series) -> list[Any]:
        """Return a series in the form in which it is saved. Points without a known UTC are left
        out, because their age would be unknown after the next start.
        """
        points = zip(map(self.utc, one.times), one.values, strict=True)
        kept = [(time, value) for time, value in points if time is not None]
        times, values = [time for time, _ in kept], [value for _, value in kept]
        return [one.unit, one.value, self.utc(one.time), times, values]


def _on_axis(now: float) -> int:
    """Return a time on the time axis as a value of `_Series.times`: a negative number, in µs. now:
    seconds.
    """
    return -1 - int(now * 1e6)


def _off_axis(time: int) -> float:
    return (-1 - time) / 1e6


def _read(file: Path) -> dict[str, dict[str, _Series]]:
    try:
        found = json.loads(file.read_text())
        return {
            str(board): {str(name): _of(kept) for name, kept in names.items()}
            for board, names in found.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.error("%s: cannot be read (%s): the last readings are not shown", file, error)
        return {}


def _of(kept: Any) -> _Series:
    unit, value, time, times, values = kept
    if len(times) != len(values) or not isinstance(time, int | None):
        raise ValueError("no series")
    return _Series(unit, value, time, array("q", times), array("d", values))
