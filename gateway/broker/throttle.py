"""Say a thing once, not a thousand times a second. In: a key. Out: whether to log it now."""

from collections.abc import Callable

QUIET_S = 60.0
_KEYS = 1024


class Throttle:
    """A key is allowed again when it was not asked for during a quiet time. now: seconds, any
    origin.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[str, float] = {}

    def allows(self, key: str) -> bool:
        now = self._now()
        known = self._seen.pop(key, None)
        if len(self._seen) >= _KEYS:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = now
        return known is None or now - known > QUIET_S
