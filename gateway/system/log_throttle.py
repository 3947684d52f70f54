"""Say a thing once, not a thousand times a second, and not a thousand different things either.

In: a key. Out: whether to log it now. What is left out because there is too much of it in all is
counted, and said when there is room again.
"""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

QUIET_S = 60.0
MOST_AT_ONCE = 30
_EVERY_S = 2.0
"""After so many lines at once there is one in so many seconds."""
_KEYS = 1024


class LogThrottle:
    """A key is allowed again when it was not asked for during a quiet time. now: seconds, any
    origin.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[str, float] = {}
        self._full_until = float("-inf")
        """When there is room for MOST_AT_ONCE lines again."""
        self._left_out = 0

    def allows(self, key: str) -> bool:
        now = self._now()
        known = self._seen.pop(key, None)
        if len(self._seen) >= _KEYS:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = now
        return (known is None or now - known > QUIET_S) and self._has_room(now)

    def _has_room(self, now: float) -> bool:
        until = max(self._full_until, now) + _EVERY_S
        if until > now + MOST_AT_ONCE * _EVERY_S:
            if not self._left_out:
                log.warning("there are too many different warnings: some are left out")
            self._left_out += 1
            return False
        self._full_until = until
        if self._left_out and until < now + QUIET_S / 2:
            log.warning("%d warnings were left out", self._left_out)
            self._left_out = 0
        return True
