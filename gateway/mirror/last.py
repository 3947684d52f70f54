"""The last reading of each board under each name, in memory, with points of the last hours for
plots.

In: new readings, or `DATA/readings.json` after a restart. Out: the known values of a board. The
file is written every ten minutes and at a clean end, never for a single reading. After a power cut,
displayed values may be ten minutes old. No acknowledged publication is lost.
"""

import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.mirror.counts import HourCounts
from gateway.payload.faults import FAULT
from gateway.payload.readings import Reading
from gateway.system.jobs import Job, SavedFile

log = logging.getLogger(__name__)

FILE = "readings.json"
COUNTS = "readings-an-hour.json"
TOPICS = "readings-topics.json"
MOST_NAMES = 10_000
"""Largest number of names of readings of all boards together."""
MOST_OF_ONE = 64
"""Largest number of names of readings of one board. Readings with further names are ignored."""
POINTS = 240
"""Largest number of points of a plot."""
MOST_TOPICS = 4
"""Largest number of topics that are kept for one name of a reading."""
LONGEST_TOPIC = 256
"""Length of the longest topic that is kept, in characters."""
UNKNOWN = ""
"""Placeholder for a topic that is not kept."""
MOST_PLOTS = 1_000
"""Largest number of names with a plot of the last hours: 30 MB at most."""


@dataclass(slots=True)
class Series:
    """The readings of one board under one name: the last reading, and points for a plot."""

    last: Reading
    points: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=POINTS))
    """Pairs of time (µs since 1970) and value, for the last readings that have a known time and are
    not text.
    """
    topics: tuple[str, ...] = ()
    """Topics on which the board has published this name, MOST_TOPICS at most. UNKNOWN stands for
    all other topics, and for topics that are too long.
    """
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=4))
    """Seconds between the arrivals of consecutive readings, newest last."""


class LastReadings:
    """The last values of each board: one `Series` per name of a reading. Readings under names
    beyond MOST_NAMES and MOST_OF_ONE are not kept.
    """

    def __init__(self, folder: Path) -> None:
        self.saved = SavedFile(folder / FILE, "the last readings")
        self.saved_counts = SavedFile(folder / COUNTS, "the counts of readings")
        self.saved_topics = SavedFile(folder / TOPICS, "the topics of readings")
        self._boards: dict[str, dict[str, Series]] = {}
        self._count = 0
        self._new = False
        self._counts_text = self._topics_text = "{}"
        self.axis: Callable[[], float] = lambda: 0.0
        """Function that returns the time on the broker's time axis, in seconds."""
        self._timeless = HourCounts()
        """Counts of readings that arrived while the clock was not synchronised. Their times are on
        the time axis, not UTC.
        """
        self._counts = _counts(folder / COUNTS)
        counts, self._counts = self._counts, HourCounts()  # restored readings were counted before
        for name, known in _read(folder / FILE).items():
            for reading in known:
                self.take(name, reading)
        for name, kept in _read_topics(folder / TOPICS).items():
            for item, topics in kept.items():
                if (series := self.of(name).get(item)) is not None:
                    series.topics = topics
        self._new, self._counts, self._timeless = False, counts, HourCounts()

    @property
    def jobs(self) -> list[Job]:
        return [self.saved.job, self.saved_counts.job, self.saved_topics.job]

    @property
    def devices(self) -> list[str]:
        return list(self._boards)

    def of(self, device: str) -> dict[str, Series]:
        """Return the series of a board by name; empty for an unknown board."""
        return self._boards.get(device, {})

    def take(self, device: str, reading: Reading, topic: str | None = None) -> bool:
        """Keep a reading. Return False if there is no room for the reading's name. topic: topic of
        the publication; None for a restored reading.
        """
        if not reading.status:
            if (time := reading.time or reading.received) is not None:
                self._counts.take(device, time)
            else:
                self._timeless.take(device, int(self.axis() * 1e6))
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
        if topic is not None and topic not in series.topics:
            series.topics = _with(series.topics, topic)
        if reading.time is not None and not isinstance(reading.value, str):
            series.points.append((reading.time, float(reading.value)))
        self._new = True
        return True

    def mend(self, device: str, reading: Reading) -> Reading | None:
        """End the fault of a quantity that has a value again. Return the changed fault record, or
        None if there was no fault.
        """
        series = self.of(device).get(reading.name + FAULT)
        if reading.status or series is None or not series.last.value:
            return None
        series.last = replace(series.last, value=0, time=reading.time, received=reading.received)
        self._new = True
        return series.last

    def forget(self, device: str) -> list[str]:
        """Forget a removed board. Return the names of its readings."""
        names = list(self._boards.pop(device, {}))
        self._counts.forget(device)
        self._timeless.forget(device)
        self._count -= len(names)
        self._new = self._new or bool(names)
        return names

    def received(self, device: str) -> int | None:
        """Return the time of a board's last reading in µs since 1970, or None if unknown."""
        known = self.of(device).values()
        return max((item.last.received for item in known if item.last.received), default=None)

    def per_hour(self, device: str, utc: int | None) -> int:
        """Return the number of a board's readings in the last hour, counted by whole minutes. utc:
        None while the clock is not synchronised; readings before the last restart do not count
        then.
        """
        timeless = self._timeless.of(device, int(self.axis() * 1e6))
        return timeless + (0 if utc is None else self._counts.of(device, utc))

    def news(self) -> str | None:
        """Return the text for `write` if anything has changed since the last call, or if the last
        write failed; else None.
        """
        if not self._new:
            return self.saved.unwritten
        self._new = False
        self._counts_text = json.dumps(self._counts.kept())
        self._topics_text = json.dumps(
            {
                device: {name: series.topics for name, series in names.items() if series.topics}
                for device, names in self._boards.items()
            }
        )
        shown = {
            device: [asdict(series.last) for series in names.values()]
            for device, names in self._boards.items()
        }
        return json.dumps(shown)

    def write(self, text: str) -> None:
        """Write the files. text: result of `news`. Any thread may call this."""
        self.saved.write(text)
        self.saved_counts.write(self._counts_text)
        self.saved_topics.write(self._topics_text)


def _counts(file: Path) -> HourCounts:
    try:
        return HourCounts(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError, AttributeError):
        return HourCounts()


def _read(file: Path) -> dict[str, list[Reading]]:
    """Return the readings that an earlier run saved in `file`; none if the file is unreadable."""
    try:
        found = json.loads(file.read_text())
        return {str(name): [_reading(item) for item in known] for name, known in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _with(topics: tuple[str, ...], topic: str) -> tuple[str, ...]:
    """Return `topics` and one more topic. If there are too many topics, or this one is too long,
    UNKNOWN stands for it.
    """
    fits = len(topics) < MOST_TOPICS and len(topic) <= LONGEST_TOPIC
    return tuple(dict.fromkeys([*topics, topic if fits else UNKNOWN]))


def _read_topics(file: Path) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the topics that an earlier run saved in `file`, by board and by name of the reading;
    empty if the file is unreadable.
    """
    try:
        return {
            str(device): {str(name): tuple(map(str, topics)) for name, topics in names.items()}
            for device, names in json.loads(file.read_text()).items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _reading(item: dict[str, Any]) -> Reading:
    reading = Reading(**item)
    if not isinstance(reading.name, str) or not isinstance(reading.value, float | int | str):
        raise ValueError
    return reading
