"""How often a board samples, and how long its EEPROM lives so.

In: `90s`, `15min` as people type it. Out: the board's command for it, and years. The figures are
those of firmware/examples/sensor with its journal in the chip's EEPROM.
"""

import re
from dataclasses import dataclass

from gateway.errors import OncewayError

CELL_WRITES = 100_000
"""ATmega328P data sheet, features: write/erase cycles of the EEPROM."""
SLOTS = 60
"""Of the journal: a publication writes each cell of one slot once (firmware/README.md)."""
LEAST_YEARS = 1.0
MOST_YEARS = 100.0
"""How long an EEPROM keeps its content (the same place of the data sheet)."""
_YEAR_S = 365.25 * 86_400
_STATUSES = 365.25
"""A year: one a day."""
_LONGEST = 65_535
_UNITS = {"ms": ("", 1, 0.001), "s": (" s", 1, 1.0), "min": (" min", 1, 60.0)}
_UNITS |= {"m": _UNITS["min"], "h": (" min", 60, 60.0), "d": (" min", 1440, 60.0)}
"""By unit: how the board calls it, how many of those it is, and seconds of one of those."""


@dataclass(frozen=True, slots=True)
class Interval:
    """text: as it was typed. command: for the board. seconds: between two readings."""

    text: str
    command: str
    seconds: float

    def years(self, next_sequence: int = 1) -> float:
        """That the EEPROM lives on, of a board that will publish this sequence next."""
        left = max(CELL_WRITES * SLOTS - next_sequence, 0)
        return min(left / (_YEAR_S / self.seconds + _STATUSES), MOST_YEARS)

    def is_short(self, next_sequence: int = 1) -> bool:
        """Whether it leaves the EEPROM less than a year."""
        return self.years(next_sequence) < LEAST_YEARS

    def check(self, next_sequence: int = 1) -> None:
        """Raises OncewayError when it is short."""
        if self.is_short(next_sequence):
            days = self.years(next_sequence) * _YEAR_S / 86_400
            raise OncewayError(
                f"at a reading each {self.text} the board's EEPROM is worn out in {days:.0f} days",
                "--interval",
                "A longer one, or --force",
            )


def parse(text: str) -> Interval:
    """Raises OncewayError for what is no interval of the sensor's."""
    match = re.fullmatch(r"(\d+) ?(ms|s|min|m|h|d)", text.strip())
    if match:
        name, times, seconds = _UNITS[match[2]]
        number = int(match[1]) * times
        # 65535 milliseconds stand for "no samples"
        if 0 < number < _LONGEST + bool(name):
            return Interval(text.strip(), f"interval {number}{name}", number * seconds)
    raise OncewayError(
        f"{text!r} is no interval of a sensor", "--interval", "For example 30s, 15min or 1d"
    )
