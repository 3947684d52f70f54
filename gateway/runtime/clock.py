"""Time for the broker: a time axis that never jumps, and UTC once it is known.

In: the kernel's clocks. Out: seconds on the time axis, on which all deadlines are set, and UTC if
it can be trusted. A Raspberry Pi has no battery clock: it starts in the past and jumps when it gets
the time from the network. So no deadline uses UTC, and rows get their UTC once it is known.
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
    """The time axis and UTC. trust: rely on the system clock without asking the kernel."""

    def __init__(self, trust: bool) -> None:
        self._trust = trust
        self._known = False
        self._start = 0.0
        self._offset = 0.0

    def utc(self) -> int | None:
        """Return µs since 1970, or None while unknown. Once known, the time stays known."""
        self._known = self._known or self._trust or synchronised()
        return time.time_ns() // 1000 if self._known else None

    def start(self, axis: float, monotonic: float) -> None:
        """Continue the time axis at `axis` seconds, when the event loop's clock shows
        `monotonic`.
        """
        self._start = monotonic
        self._offset = axis - monotonic

    def axis(self, monotonic: float) -> float:
        """Return seconds on the time axis."""
        return monotonic + self._offset

    def utc_start(self, monotonic: float) -> int | None:
        """Return the start of this boot in µs since 1970, or None."""
        utc = self.utc()
        return None if utc is None else utc - int((monotonic - self._start) * 1_000_000)
