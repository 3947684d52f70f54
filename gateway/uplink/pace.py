"""Pacing of uploads: the upload window and the bound of the average rate, for links on which
traffic costs money.

In: settings, the time of day, bytes sent. Out: permission, or the time to wait. A batch is sent at
the speed of the link, followed by a pause that restores the average.
"""

import time
from datetime import datetime, timedelta

from gateway.config import UplinkSection, split_window


class Pace:
    """The pacing of one uplink. The window is in local time; the rate uses the monotonic clock."""

    def __init__(self, settings: UplinkSection) -> None:
        self._windows = [split_window(window) for window in settings.window]
        self._rate = settings.bytes_per_s
        self._free_at = 0.0

    def open(self, now: datetime | None = None) -> bool:
        """Whether batches may be sent now: always, unless windows are configured. A window that
        ends before it begins spans midnight.
        """
        at = (now or datetime.now().astimezone()).time()
        return not self._windows or any(
            begin <= at < end if begin < end else at >= begin or at < end
            for begin, end in self._windows
        )

    def opens(self, now: datetime) -> datetime:
        """Return the time at which a closed window opens next."""
        begins = [datetime.combine(now.date(), begin, now.tzinfo) for begin, _ in self._windows]
        return min(at if at > now else at + timedelta(days=1) for at in begins)

    def sent(self, size: int) -> None:
        if self._rate:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._rate

    def wait_s(self) -> float:
        """Return the seconds until the next batch may begin, 0 if it may begin now."""
        return max(0.0, self._free_at - time.monotonic())
