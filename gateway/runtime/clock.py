"""Time for the broker: a time axis that never jumps, and UTC once it is known.

In: the kernel's clocks. Out: seconds on the time axis, on which all deadlines are set, and UTC if
it can be trusted. A Raspberry Pi has no battery clock: its clock starts in the past and jumps when
the time comes from the network. So no deadline uses UTC, and rows get their UTC once it is known.
"""

import ctypes
import logging
import time
from collections.abc import Callable

from gateway.system.time_of_day import STEP, day, doubt, rtc

log = logging.getLogger(__name__)

REMEDY = (
    "If this time is right: sudo onceway clock trust. If not, correct the clock; `timedatectl`"
    " shows whether it is set from the network"
)

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
    """The time axis and UTC. trust: rely on the system clock without asking the kernel. wall, boot:
    ns since 1970 and since the boot of the machine, suspended time included; replaced by tests.

    An implausible time (`time_of_day.py`) is not used: UTC stays unknown at a start, and continues
    from the last believed time while the gateway runs.
    """

    def __init__(
        self,
        trust: bool,
        wall: Callable[[], int] = time.time_ns,
        boot: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME),
    ) -> None:
        self._trust = trust
        self._wall = wall
        self._boot = boot
        self._known = False
        self._seen: int | None = None
        """Lower bound for the time of the machine's boot, in µs since 1970, computed from the
        newest time of an earlier run. None if no earlier run is known.
        """
        self._ahead: int | None = None
        """Time of the machine's boot, in µs since 1970, computed from the newest time that was
        believed. None before any time was believed.
        """
        self.doubt: str | None = None
        """Reason why the system clock is not believed, as a sentence; None while it is believed."""
        self._start = 0.0
        self.offset = 0.0
        """Seconds on the time axis when the event loop's clock shows 0."""

    def utc(self) -> int | None:
        """Return µs since 1970, or None while unknown. Once known, the time stays known."""
        self._known = self._known or self._trust or synchronised()
        if not self._known:
            return None
        now, up = self._wall() // 1000, self._boot() // 1000
        known = None if self._ahead is None else self._ahead + up
        if known is None:
            seen = None if self._seen is None else self._seen + up
            why = doubt(now, seen, rtc() if seen is not None and now - seen > STEP else None)
        else:
            why = "it was set while the gateway ran" if abs(now - known) > STEP else None
        self._tell(now, why)
        if why is not None:
            return known
        self._ahead = now - up
        return now

    def know(self, seen: int | None) -> None:
        """Take over the newest time that an earlier run has believed, in µs since 1970, or None."""
        self._seen = None if seen is None else seen - self._boot() // 1000

    def trust(self) -> None:
        """Believe the system clock, because a person says so."""
        self._known, now = True, self._wall() // 1000
        self._ahead = now - self._boot() // 1000
        self._tell(now, None)

    def times(self, trust: bool = False) -> dict[str, int | str | None]:
        """Return `system` and `utc`: the times of the system clock and of the gateway, in µs since
        1970; `utc` is None while it is unknown. Also return `doubt`: the reason why the system
        clock is not believed, or None. trust: believe the system clock from now on.
        """
        if trust:
            self.trust()
        utc = self.utc()
        return {"system": self._wall() // 1000, "utc": utc, "doubt": self.doubt}

    def _tell(self, now: int, why: str | None) -> None:
        """Log when the system clock is no longer believed, and when it is believed again. why: the
        reason for not believing the clock now; None if it is believed.
        """
        if why is not None and self.doubt is None:
            self.doubt = (
                f"the clock shows {day(now)}, which is not believed: {why}. No session expires"
                f" by it, and messages get no time from it. {REMEDY}"
            )
            log.warning("%s", self.doubt)
        elif why is None and self.doubt is not None:
            self.doubt = None
            log.warning("the clock is believed again: it shows %s", day(now))

    def start(self, axis: float, monotonic: float) -> None:
        """Continue the time axis at `axis` seconds, when the event loop's clock shows
        `monotonic`.
        """
        self._start = monotonic
        self.offset = axis - monotonic

    def utc_start(self, monotonic: float) -> int | None:
        """Return the time of the call of `start` in µs since 1970, or None while UTC is unknown.
        monotonic: the present time of the event loop's clock.
        """
        utc = self.utc()
        return None if utc is None else utc - int((monotonic - self._start) * 1_000_000)
