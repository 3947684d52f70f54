"""The last reading of each name of each board, in memory, and its last hours.

In: readings as they come, or `DATA/readings.json` after a restart. Out: what is known of a board
now. A card's page is written every ten minutes and at a clean end, never for a reading: a power cut
costs what is shown of these minutes, and nothing that was acknowledged.
"""

import json
import logging
import os
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.payload.faults import FAULT
from gateway.payload.readings import Reading

log = logging.getLogger(__name__)

FILE = "readings.json"
MOST_NAMES = 10_000
"""Of all boards."""
MOST_OF_ONE = 64
"""Names of one board."""
POINTS = 240
"""Of a plot."""
MOST_PLOTS = 1_000
"""Names whose last hours are kept: 30 MB at most."""
HOUR_US = 3_600_000_000


@dataclass(slots=True)
class Series:
    """One name of one board."""

    last: Reading
    points: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=POINTS))
    """(time in µs since 1970, value) of the last ones whose time is known."""
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=4))
    """Seconds between the last receipts."""


class LastReadings:
    """By board and name. A name beyond the bounds is not kept."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._boards: dict[str, dict[str, Series]] = {}
        self._count = 0
        self._new = False
        for name, known in _read(self._file).items():
            for reading in known:
                self.take(name, reading)
        self._new = False

    @property
    def devices(self) -> list[str]:
        return list(self._boards)

    def of(self, device: str) -> dict[str, Series]:
        """What is known of a board, by name; empty for an unknown one."""
        return self._boards.get(device, {})

    def take(self, device: str, reading: Reading) -> bool:
        """Keep a reading. False when there is no room for its name."""
        names = self._boards.get(device, {})
        series = names.get(reading.name)
        if series is None:
            if self._count >= MOST_NAMES or len(names) >= MOST_OF_ONE:
                return False
            self._boards.setdefault(device, names)[reading.name] = series = Series(reading)
            self._count += 1
            if self._count > MOST_PLOTS:
                series.points = deque(maxlen=1)
        elif reading.received is not None and series.last.received is not None:
            series.gaps.append((reading.received - series.last.received) / 1_000_000)
        series.last = reading
        if reading.time is not None and not isinstance(reading.value, str):
            series.points.append((reading.time, float(reading.value)))
        self._new = True
        return True

    def mend(self, device: str, reading: Reading) -> Reading | None:
        """End the fault of what has a value again. Returns the record that says so."""
        series = self.of(device).get(reading.name + FAULT)
        if reading.status or series is None or not series.last.value:
            return None
        series.last = replace(series.last, value=0, time=reading.time, received=reading.received)
        self._new = True
        return series.last

    def forget(self, device: str) -> list[str]:
        """A board is gone. Returns the names that it had."""
        names = list(self._boards.pop(device, {}))
        self._count -= len(names)
        self._new = self._new or bool(names)
        return names

    def received(self, device: str) -> int | None:
        """When a board's last reading was taken, µs since 1970; None when that is not known."""
        known = self.of(device).values()
        return max((item.last.received for item in known if item.last.received), default=None)

    def per_hour(self, device: str, utc: int) -> int:
        """Readings of a board whose time is in the last hour, as far as plots reach."""
        since = utc - HOUR_US
        plots = [item.points for item in self.of(device).values() if not item.last.status]
        return sum(time > since for plot in plots for time, _ in plot)

    def news(self) -> str | None:
        """What `write` shall write, if there is anything new since the last call."""
        if not self._new:
            return None
        self._new = False
        shown = {
            device: [asdict(series.last) for series in names.values()]
            for device, names in self._boards.items()
        }
        return json.dumps(shown)

    def write(self, text: str) -> None:
        """On any thread."""
        new = self._file.with_suffix(".new")
        try:
            new.write_text(text)
            os.replace(new, self._file)
        except OSError as error:
            log.error("%s: cannot write the last readings (%s)", self._file, error.strerror)


def _read(file: Path) -> dict[str, list[Reading]]:
    """What a gateway has left; nothing when that cannot be read."""
    try:
        found = json.loads(file.read_text())
        return {str(name): [_reading(item) for item in known] for name, known in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _reading(item: dict[str, Any]) -> Reading:
    reading = Reading(**item)
    if not isinstance(reading.name, str) or not isinstance(reading.value, float | int | str):
        raise ValueError
    return reading
