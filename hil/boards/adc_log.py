"""Log of a simulated board's ADC: values and times, written by its simulator (firmware/sim),
independently of the program on the board. In: the file, while it grows. Out: conversions and starts
of the board, with board time and this machine's monotonic clock.
"""

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import OncewayError

FULL_SCALE_UV = 5_000_000  # the Uno's reference
STEPS = 1024
STRIDE = 619
"""Number of ADC steps, modulo 1024, from one conversion to the next (firmware/sim/adc.c)."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion. cycle: board time. ns: this machine's monotonic clock. microvolts: the voltage
    at the input at that time.
    """

    cycle: int
    ns: int
    channel: int
    microvolts: int

    @property
    def volts(self) -> float:
        """Return the voltage that the board should report. The ADC rounds down to one of its steps
        (data sheet of the ATmega328P, "ADC Conversion Result").
        """
        return self.microvolts * STEPS // FULL_SCALE_UV * FULL_SCALE_UV / 1e6 / STEPS


@dataclass(frozen=True, slots=True)
class Started:
    """A start of the board, after power-on or a reset. cycle: board time. ns: this machine's
    monotonic clock. cause: as in the event `boot`.
    """

    cycle: int
    ns: int
    cause: str


class AdcLog:
    """The ADC log of one board. conversions, starts: the entries that `look` has read, in order."""

    def __init__(self, path: Path) -> None:
        self.conversions: list[Conversion] = []
        self.starts: list[Started] = []
        self._path = path
        self._offset = 0
        self._line = 0

    def look(self) -> None:
        """Read new lines. Raises OncewayError for an invalid line."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return
        self._offset += len(whole) + 1
        for line in whole.decode().splitlines():
            self._line += 1
            self._take(line)

    def newest(self, cycle: int) -> int:
        """Return the index of the last conversion up to this board time, or -1."""
        return bisect_right(self.conversions, cycle, key=lambda one: one.cycle) - 1

    def life(self, cycle: int) -> int:
        """Return the index of the last start up to this board time, or -1."""
        return bisect_right(self.starts, cycle, key=lambda one: one.cycle) - 1

    def _take(self, line: str) -> None:
        try:
            first, second, third, fourth = line.split()
            if third == "start":
                self.starts.append(Started(int(first), int(second), fourth))
            else:
                made = Conversion(int(first), int(second), int(third), int(fourth))
                self.conversions.append(made)
        except ValueError:
            raise OncewayError(
                f"line {self._line} is neither a conversion nor a start", str(self._path)
            ) from None
