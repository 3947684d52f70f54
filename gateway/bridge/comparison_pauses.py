"""The pauses before a comparison of retained messages on a new connection.

In: the comparisons of one bridge. Out: seconds to wait before the next one. Each comparison reads
all retained messages of the other broker. On a connection that breaks again and again, most
comparisons find no difference. After FREE such comparisons in a row, there is a pause before the
next comparison. Each pause is twice as long as the previous one, but at most as long as it takes to
read the bytes of the last comparison at BYTES_PER_S.
"""

import math

FREE = 3
"""Number of consecutive comparisons without a difference before the first pause."""
FIRST_S = 10.0
"""First pause between two comparisons, in seconds. Each further pause is twice as long."""
BYTES_PER_S = 100
"""Bytes per second. The longest pause after a comparison, in seconds, is the number of bytes that
it read, divided by this rate.
"""
_MOST_DOUBLINGS = 16


class ComparisonPauses:
    """The pauses of one bridge, over all its connections. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._in_vain = 0
        """Number of comparisons without a difference since the last comparison with one, or since
        the last call of `forgive`.
        """
        self._ended_at = -math.inf
        self._size = 0

    def ended(self, now: float, size: int, *, differed: bool) -> None:
        """Note that a comparison has ended, complete or cut short by the end of the connection.
        size: bytes that were read. differed: whether a topic had to be made equal.
        """
        self._in_vain = 0 if differed else self._in_vain + 1
        self._ended_at, self._size = now, size

    def forgive(self) -> None:
        """Allow the next comparisons without a pause, because the connection has been stable."""
        self._in_vain = 0

    def left_s(self, now: float) -> float:
        """Return the seconds until the next comparison may begin."""
        if self._in_vain < FREE:
            return 0.0
        pause = FIRST_S * 2.0 ** min(self._in_vain - FREE, _MOST_DOUBLINGS)
        return max(0.0, self._ended_at + min(pause, self._size / BYTES_PER_S) - now)
