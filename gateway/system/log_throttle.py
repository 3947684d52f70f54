"""A limit for log lines: one line per key, and a bounded rate of lines with different keys.

In: a key. Out: whether to log the line now. Lines left out because of the rate are counted, and
their number is logged when the rate has dropped.
"""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

QUIET_S = 60.0
MOST_AT_ONCE = 30
_EVERY_S = 2.0
"""Seconds between two lines, after the first MOST_AT_ONCE lines."""
_KEYS = 1024


class LogThrottle:
    """A limit for log lines. A line is allowed if no line with its key was requested in the last
    QUIET_S seconds, and the rate of all lines has room. now: a clock in seconds, of any origin.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[str, float] = {}
        self._full_until = float("-inf")
        """Time at which MOST_AT_ONCE lines are allowed again. The time is in the past if no line
        was logged for long.
        """
        self._left_out = 0

    def allows(self, key: str) -> bool:
        now = self._now()
        known = self._seen.pop(key, None)
        if len(self._seen) >= _KEYS:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = now
        return (known is None or now - known > QUIET_S) and self.has_room()

    def has_room(self) -> bool:
        """Return whether the rate of all lines allows one more line. If so, count the line as
        logged.
        """
        now = self._now()
        until = max(self._full_until, now) + _EVERY_S
        if until > now + MOST_AT_ONCE * _EVERY_S:
            if not self._left_out:
                log.warning("there are too many different warnings: some are left out")
            self._left_out += 1
            return False
        self._full_until = until
        if self._left_out and until < now + QUIET_S / 2:
            log.warning("warnings left out: %d", self._left_out)
            self._left_out = 0
        return True
