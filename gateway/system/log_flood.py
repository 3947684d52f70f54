"""A limit for the number of log lines from each place in the code, in all packages.

In: log records. Out: whether to write them. `LogThrottle` selects lines that are worth reading.
This filter runs after it, and covers the loggers of libraries. So the log grows by a bounded number
of lines, whatever unknown clients send.
"""

import logging
import time
from collections.abc import Callable
from threading import Lock

AT_ONCE = 200
EVERY_S = 2.0
"""Seconds between two lines of one place in the code, after its first AT_ONCE lines."""


class LogFlood:
    """A filter for log handlers: it limits the records of each line of code. least: the lowest
    level whose records are limited. now: a clock in seconds, of any origin.
    """

    def __init__(
        self, least: int = logging.INFO, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._least = least
        self._now = now
        self._full_until: dict[tuple[str, int], float] = {}
        """Time from which AT_ONCE lines in a row are allowed, by file and line in the code."""
        self._left_out: dict[tuple[str, int], int] = {}
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record. If several handlers ask about one record, all get the
        same answer.
        """
        known = getattr(record, "is_written", None)
        if known is None:
            with self._lock:
                known = record.is_written = record.levelno < self._least or self._has_room(record)
        return bool(known)

    def _has_room(self, record: logging.LogRecord) -> bool:
        place, now = (record.pathname, record.lineno), self._now()
        until = max(self._full_until.get(place, now), now) + EVERY_S
        left_out = self._left_out.get(place, 0)
        if until > now + AT_ONCE * EVERY_S:
            self._left_out[place] = left_out + 1
            return False
        self._full_until[place] = until
        if left_out:
            _add(record, f" (lines like this left out before: {left_out})")
        elif until + EVERY_S > now + AT_ONCE * EVERY_S:
            _add(record, " (more lines like this are left out)")
        self._left_out[place] = 0
        return True


def _add(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = f"{record.getMessage()}{text}", ()
