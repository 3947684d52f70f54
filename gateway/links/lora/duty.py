"""Duty cycle: when a radio may send within the legal limit of an hour.

In: transmissions, in seconds of a monotonic clock. Out: when the next one may begin. A gateway has
a `Ledger` of its last hour, which survives a restart (`ledger_file.py`). A board has no clock that
survives a power cut: it keeps silent after each frame (`airtime.silence_factor`).

A token bucket would be wrong. A bucket that begins full, and is refilled during the hour, allows
twice the limit in its first hour.
"""

from collections import deque
from math import ceil

BLOCKS = 240
"""Number of parts of the hour. Transmissions within one part count as one block."""


class Ledger:
    """Transmissions of one radio in one sub-band within the last hour. duty: the legal limit, as a
    share of the time, 0…1. hour: seconds; tests may shorten it. margin: longest delay of the radio,
    in seconds, before it sends; the hour counts as longer by this time. Times are kept in whole
    microseconds. Errors are on the safe side: a block counts until its last transmission is an hour
    old.
    """

    def __init__(self, duty: float, hour: float = 3600.0, margin: float = 0.0) -> None:
        self._hour = round((hour + margin) * 1e6)
        self._limit = int(duty * round(hour * 1e6))
        self._block = self._hour // BLOCKS
        self._sent: deque[tuple[int, int, int]] = deque()
        """Blocks, oldest first: start, end and airtime, in microseconds."""
        self._total = 0

    @property
    def limit(self) -> float:
        """Airtime that is allowed in an hour, in seconds."""
        return self._limit / 1e6

    def used(self, now: float) -> float:
        """Return the airtime, in seconds, of the transmissions in the hour that ends now."""
        self._forget(int(now * 1e6) - self._hour)
        return self._total / 1e6

    def wait(self, airtime: float, now: float) -> float:
        """Return the seconds until a transmission of `airtime` seconds may begin: 0.0 if it may
        begin now, `inf` if it is longer than the limit of an hour. Only the hour that ends with
        this transmission is checked. That is enough, because the hours with the most airtime end
        with a transmission, and each transmission is checked.
        """
        length = ceil(airtime * 1e6)
        if length > self._limit:
            return float("inf")
        start = int(now * 1e6)
        self._forget(start + length - self._hour)
        room = self._limit - length
        kept = self._total
        for _, end, sent in self._sent:
            if kept <= room:
                break
            kept -= sent
            start = end + self._hour - length
        return max(start / 1e6 - now, 0.0)

    def add(self, airtime: float, start: float) -> None:
        """Note a transmission of `airtime` seconds that begins at `start`. `start` must not be
        before the previous transmission's start.
        """
        length = ceil(airtime * 1e6)
        begins = int(start * 1e6)
        self._put(begins, begins + length, length)

    def blocks(self, now: float) -> list[tuple[float, float]]:
        """Return the blocks of airtime that count now, oldest first: seconds since the block's end,
        and its airtime.
        """
        self._forget(int(now * 1e6) - self._hour)
        return [(now - end / 1e6, sent / 1e6) for _, end, sent in self._sent]

    def restore(self, blocks: list[tuple[float, float]], now: float) -> None:
        """Restore blocks that `blocks` has returned, perhaps in an earlier process. now: the
        present time of this process's clock.
        """
        for age, airtime in blocks:
            end, length = ceil((now - age) * 1e6), ceil(airtime * 1e6)
            self._put(end - length, end, length)
        self._forget(int(now * 1e6) - self._hour)

    def _put(self, start: int, end: int, airtime: int) -> None:
        if self._sent and end - self._sent[-1][0] <= self._block:
            first, _, sent = self._sent.pop()
            self._sent.append((first, end, sent + airtime))
        else:
            self._sent.append((start, end, airtime))
        self._total += airtime

    def _forget(self, since: int) -> None:
        while self._sent and self._sent[0][1] <= since:
            self._total -= self._sent.popleft()[2]
