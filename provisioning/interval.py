"""The sampling interval of a board, and how long the EEPROM lasts with it.

In: `90s` or `15min` as people type it. Out: the board's command for it, and years. The figures are
those of firmware/examples/sensor with its journal in the chip's EEPROM.
"""

import re
from dataclasses import dataclass

from gateway.errors import OncewayError

CELL_WRITES = 100_000
"""Write/erase cycles of the EEPROM (ATmega328P data sheet, features)."""
SLOTS = 60
"""Slots of the journal. A publication writes each cell of one slot once (firmware/JOURNAL.md)."""
LEAST_YEARS = 1.0
MOST_YEARS = 100.0
"""Time for which an EEPROM keeps its content, in years (ATmega328P data sheet, features)."""
_YEAR_S = 365.25 * 86_400
_STATUSES = 365.25
"""Number of status messages per year: one a day."""
_LONGEST = 65_535
_UNITS = {"ms": ("", 1, 0.001), "s": (" s", 1, 1.0), "min": (" min", 1, 60.0)}
_UNITS |= {"m": _UNITS["min"], "h": (" min", 60, 60.0), "d": (" min", 1440, 60.0)}
"""Units that people type. For each: the unit in the board's command, the number of the command's
units in one typed unit, and the seconds in one of the command's units.
"""


@dataclass(frozen=True, slots=True)
class Interval:
    """A sampling interval. text: as typed. command: payload for the board. seconds: between
    readings.
    """

    text: str
    command: str
    seconds: float

    def years(self, next_sequence: int = 1) -> float:
        """Return how many years the EEPROM lasts. next_sequence: the board's next sequence; earlier
        publications have used up a part of the EEPROM's life.
        """
        remaining = max(CELL_WRITES * SLOTS - next_sequence, 0)
        return min(remaining / (_YEAR_S / self.seconds + _STATUSES), MOST_YEARS)

    def is_short(self, next_sequence: int = 1) -> bool:
        """Whether the EEPROM lasts less than a year. next_sequence: as for `years`."""
        return self.years(next_sequence) < LEAST_YEARS

    def check(self, next_sequence: int = 1) -> None:
        """Raise OncewayError if the EEPROM lasts less than a year. next_sequence: as for
        `years`.
        """
        if self.is_short(next_sequence):
            days = self.years(next_sequence) * _YEAR_S / 86_400
            raise OncewayError(
                f"with a reading every {self.text}, the board's EEPROM lasts only {days:.1f} days",
                "--interval",
                "Give a longer interval, or --force",
            )


def parse(text: str) -> Interval:
    """Parse an interval. Raises OncewayError if the sensor has no such interval."""
    match = re.fullmatch(r"(\d+) ?(ms|s|min|m|h|d)", text.strip())
    if match:
        name, times, seconds = _UNITS[match[2]]
        number = int(match[1]) * times
        # 65535 milliseconds mean "no samples"
        if 0 < number < _LONGEST + bool(name):
            return Interval(text.strip(), f"interval {number}{name}", number * seconds)
    raise OncewayError(
        f"{text!r} is not an interval of a sensor", "--interval", "For example 30s, 15min or 1d"
    )
