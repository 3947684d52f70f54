"""Time for the broker: an axis that never jumps, and the clock once it is known.

In: the kernel's clocks. Out: seconds on the time axis, on which all deadlines stand, and UTC when
it can be trusted. A Pi has no battery clock: it starts in the past and jumps when the network tells
it the time. So nothing waits by UTC, and rows get their UTC when it is known.
"""

import ctypes
import time

_TIMEX_SIZE = 256
_STATUS_OFFSET = 40  # struct timex, <sys/timex.h>, 64-bit
_STA_UNSYNC = 0x40


def synchronised() -> bool:
    """Whether the kernel calls its clock synchronised (adjtimex)."""
    timex = ctypes.create_string_buffer(_TIMEX_SIZE)
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return False
    return not ctypes.c_int.from_buffer(timex, _STATUS_OFFSET).value & _STA_UNSYNC


class Clock:
    """trust: take the system clock for right without asking the kernel."""

    def __init__(self, trust: bool) -> None:
        self._trust = trust
        self._known = False
        self._start = 0.0
        self._offset = 0.0

    def utc(self) -> int | None:
        """µs since 1970, or None while that is not known. Once known it stays known."""
        self._known = self._known or self._trust or synchronised()
        return time.time_ns() // 1000 if self._known else None

    def start(self, axis: float, monotonic: float) -> None:
        """The time axis goes on at `axis` seconds; the event loop's clock shows `monotonic`."""
        self._start = monotonic
        self._offset = axis - monotonic

    def axis(self, monotonic: float) -> float:
        """Seconds on the time axis."""
        return monotonic + self._offset

    def utc_start(self, monotonic: float) -> int | None:
        """µs since 1970 at which this boot began, or None."""
        utc = self.utc()
        return None if utc is None else utc - int((monotonic - self._start) * 1_000_000)
