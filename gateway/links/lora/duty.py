"""Duty cycle: when a radio may send, so that no hour holds more of it than the law allows.

In: transmissions, in seconds of a monotonic clock. Out: when the next one may begin. A gateway has
a `Ledger` of its last hour, which a restart does not make it forget (`ledger_file.py`). A board has
no clock that outlives a power cut: it keeps silent after each frame (`silence_factor`).

A token bucket is none of the two. One that begins full, and refills while it is emptied, allows
twice the limit in its first hour.
"""

from collections import deque
from math import ceil

BLOCKS = 240
"""Transmissions within so small a part of the hour count as one."""


def silence_factor(longest: float, duty: float, hour: float = 3600.0) -> float:
    """Return how many times a frame's airtime a board keeps silent after it.

    longest: seconds that the board's longest frame takes. duty: its limit, 0…1. hour: seconds.

    For frames that are short against the hour it is 1/duty − 1. That alone is a little too short:
    the worst hour begins with a frame and ends with another, and holds nearly one frame more than
    its share. Here the hour without its last frame holds only what that one leaves.

    Raises ValueError: one such frame alone is above the limit.
    """
    rest = duty * hour - longest
    if rest <= 0:
        raise ValueError(f"a frame of {longest:.3f} s is more than {duty:.1%} of {hour:g} s")
    return (hour - longest) / rest - 1


class Ledger:
    """What one radio has sent in one sub-band within the last hour.

    duty: its limit, 0…1. hour: seconds; tests may shorten it. late: seconds by which a radio may
    send later than it was told to; so much longer a transmission counts. Times are kept in whole
    microseconds. It errs on one side only: what counts as one block leaves the hour with its last
    transmission.
    """

    def __init__(self, duty: float, hour: float = 3600.0, late: float = 0.0) -> None:
        self._hour = round((hour + late) * 1e6)
        self._limit = int(duty * round(hour * 1e6))
        self._block = self._hour // BLOCKS
        self._sent: deque[tuple[int, int, int]] = deque()
        """Blocks, oldest first: start, end, airtime."""
        self._total = 0

    @property
    def limit(self) -> float:
        """Seconds that may be sent in an hour."""
        return self._limit / 1e6

    def used(self, now: float) -> float:
        """Return the seconds that were sent in the hour that ends now."""
        self._forget(int(now * 1e6) - self._hour)
        return self._total / 1e6

    def wait(self, airtime: float, now: float) -> float:
        """Return the seconds until a transmission of `airtime` seconds may begin, 0.0 for now,
        `inf` for one that never may.

        It is enough to look at the hour that ends with this transmission. Of all hours, those that
        end with a transmission hold most: from any other the window can be moved to such an end
        without losing anything. Each later transmission is looked at when its time comes.
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
        """Note a transmission of so many seconds that begins at `start`; not before the last."""
        length = ceil(airtime * 1e6)
        begins = int(start * 1e6)
        self._put(begins, begins + length, length)

    def blocks(self, now: float) -> list[tuple[float, float]]:
        """Return what counts now, oldest first: seconds since its end, and airtime."""
        self._forget(int(now * 1e6) - self._hour)
        return [(now - end / 1e6, sent / 1e6) for _, end, sent in self._sent]

    def restore(self, blocks: list[tuple[float, float]], now: float) -> None:
        """Take what `blocks` gave, as of this moment of another clock."""
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
