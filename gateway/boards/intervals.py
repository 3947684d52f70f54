"""The interval at which a board measures.

In: the times of a board's readings; the interval that a command has set, or that the board reports.
Out: seconds between two readings. A board that empties its journal after an outage sends many
readings in a burst, so the times of measurement count, if the board gives them.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

KEPT = 8
"""Largest number of gaps between readings that are kept for one board."""
LEAST_S = 1.0
"""Readings that come within this many seconds of the first reading of a measurement belong to the
same measurement. If a board measures more often, its learnt interval is a little longer than this.
"""
SURE = 3
"""After this many gaps since a command, the learnt interval replaces the commanded one. Also the
least number of alike gaps from which a shorter interval is learnt.
"""
ALIKE = 1.5
"""Largest ratio of the longest to the shortest gap at which gaps count as alike."""
LONGEST_S = 366 * 86_400.0

_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9}(?:[.][0-9]{1,3})?) ?(s|min|m|h|d)")
_COMMAND = re.compile(r"interval ([0-9]{1,5})( s| min)?(?: force)?")
_NO_SAMPLES = 65_535


@dataclass(slots=True)
class Gaps:
    """The last gaps between the readings of one board, in seconds, and the interval that a command
    has set or the board has reported.
    """

    last: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    measured: float | None = None
    """Board time, in seconds, at which the newest measurement started."""
    received: float | None = None
    """Time of arrival of the last measurement's first reading, in seconds."""
    commanded: float | None = None
    """The interval that a command has set or the board has reported, in seconds. 0: no reading is
    due. None: no such interval counts. An interval counts until SURE gaps have followed, and a 0
    until one gap has followed.
    """
    gaps_since_command: int = 0
    """Number of gaps since `commanded` was set."""
    confirmed: bool = True
    """Whether the board itself has reported the interval in `commanded`. If not, the command may
    still be on its way.
    """

    @property
    def learnt(self) -> float | None:
        """Return the seconds between two readings, according to the gaps; None without a gap. The
        second longest gap counts, because an outage makes a single long gap. After a change to a
        shorter interval, the newest gaps count.
        """
        gaps = list(self.last)
        newest = gaps[-self._alike() :]
        older = gaps[: -len(newest)]
        is_shorter = older and min(older) > ALIKE * max(newest)
        # after an outage, a board sends its journal quickly
        if len(newest) >= SURE and is_shorter and older[-1] <= ALIKE * _usual(older):
            return max(newest)
        return _usual(gaps) if gaps else None

    def _alike(self) -> int:
        """Return how many of the last gaps are alike (ALIKE), counted back from the newest one."""
        shortest, longest = math.inf, 0.0
        for count, gap in enumerate(reversed(self.last)):
            shortest, longest = min(shortest, gap), max(longest, gap)
            if longest > ALIKE * shortest:
                return count
        return len(self.last)

    @property
    def interval(self) -> float | None:
        """Return the seconds between two readings; None if unknown, 0 if no reading is due."""
        learnt = self.learnt
        if self.commanded is None:
            return learnt
        return (
            self.commanded if learnt is None or not self.commanded else max(self.commanded, learnt)
        )

    def take(self, measured: float | None, received: float) -> None:
        """Record a reading. measured: when the board took it, in seconds of any origin; None if the
        board does not say. received: time of arrival, in seconds.
        """
        both = measured is not None and self.measured is not None
        now, before = (measured, self.measured) if both else (received, self.received)
        if self.measured is None:
            self.measured = measured
        if before is None or now is None:
            self.received = received
            return
        if now - before < LEAST_S:
            return  # the next gap counts from the first reading of this measurement
        self.measured, self.received = measured or self.measured, received
        self.last.append(min(now - before, LONGEST_S))
        self.gaps_since_command += 1
        if self.gaps_since_command >= SURE or self.commanded == 0:
            self.commanded = None

    def tell(self, interval: float, *, confirmed: bool = True) -> None:
        """Record an interval, in seconds, that a command has set or the board reports. An interval
        that is longer than the learnt one counts at once. A shorter one counts only when gaps
        confirm it, because a board may refuse a command. confirmed: whether the board itself has
        reported the interval.
        """
        self.commanded, self.gaps_since_command, self.confirmed = interval, 0, confirmed

    def kept(self) -> dict[str, Any]:
        """Return the state that outlives a restart, as JSON fields."""
        return {
            "last": list(self.last),
            "measured": self.measured,
            "told": self.commanded,
            "confirmed": self.confirmed,
        }

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Gaps:
        """Restore the state that `kept` returned. Raises ValueError or TypeError."""
        gaps = cls(deque((float(gap) for gap in kept.get("last", ())), maxlen=KEPT))
        gaps.measured, gaps.commanded = kept.get("measured"), kept.get("told")
        gaps.confirmed = bool(kept.get("confirmed", True))
        return gaps


def _usual(gaps: list[float]) -> float:
    """Return the second longest gap, or the only one."""
    return sorted(gaps)[-2:][0]


def parse(text: str) -> float | None:
    """Return the seconds of `90s`, `5m`, `15min`, `2h` or `3d`; None for any other text."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    return seconds if 0 < seconds <= LONGEST_S else None


def of_command(text: str) -> float | None:
    """Return the interval that a command `interval …` sets (`firmware/README.md`), in seconds; 0 if
    the command stops the measuring. Return None if the text is another command, or if boards refuse
    it.
    """
    found = _COMMAND.fullmatch(text)
    if found is None:
        return None
    number, unit = int(found[1]), (found[2] or "").strip()
    if not 0 < number <= _NO_SAMPLES:
        return None  # boards refuse such a number
    if not unit:
        return 0.0 if number == _NO_SAMPLES else number / 1000
    return float(number * _UNITS[unit])


def words(seconds: float) -> str:
    """Return a duration for people: `90 s`, `5 min`, `2 h`, `3 days`."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size or seconds == size != 86_400:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(seconds, 1):g} s"
