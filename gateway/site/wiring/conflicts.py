"""The record of lost changes. A change of one member is lost if another member makes a newer change
without knowing of it.

In: a sentence about each lost change. Out: a log line for each sentence, and a list of the last
sentences.
"""

import logging
from collections import deque

from gateway.system.log_throttle import LogThrottle

log = logging.getLogger(__name__)

MOST = 16
"""Largest number of sentences that are kept; a further sentence replaces the oldest one."""


class Conflicts:
    """The newest sentences about lost changes, and their number since this gateway's start.
    throttle: limits the log lines.
    """

    def __init__(self, throttle: LogThrottle) -> None:
        self._throttle = throttle
        self._last: deque[str] = deque(maxlen=MOST)
        self.count = 0

    def tell(self, text: str) -> None:
        """Log a sentence and remember it, unless it is one of the remembered ones."""
        if text in self._last:
            return
        self._last.append(text)
        self.count += 1
        if self._throttle.allows(text):
            log.warning("%s", text)

    def sentences(self) -> list[str]:
        """Return the sentences about the last lost changes, the newest one last."""
        return list(self._last)
