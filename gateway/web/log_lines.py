"""The gateway's last log lines, for the page. In: log records, from `start` to `close`. Out:
matching lines, newest last. Older lines are only in the systemd journal.
"""

import logging
from collections import deque
from typing import Any

from gateway.system.logs import printable

MOST = 1000
LONGEST = 500
"""Largest number of characters of a line."""


class LogLines(logging.Handler):
    """A log handler that keeps the last MOST lines. No secret reaches it, because no secret is
    logged.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[dict[str, Any]] = deque(maxlen=MOST)
        self._count = 0

    def start(self) -> None:
        logging.getLogger().addHandler(self)

    def close(self) -> None:
        logging.getLogger().removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. Called on any thread, with the handler's lock held."""
        try:
            text = printable(record.getMessage())[:LONGEST]
        except (TypeError, ValueError):
            return
        self._count += 1
        self._lines.append(
            {
                "number": self._count,
                "time": int(record.created * 1_000_000),
                "level": record.levelname.lower(),
                "text": text,
            }
        )

    def after(self, number: int, wanted: str, level: str) -> dict[str, Any]:
        """Return the lines with a higher number than `number`. wanted: a text that each line
        contains, in any case. level: the lowest level.
        """
        least = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        levels = logging.getLevelNamesMapping()
        with self.lock:  # type: ignore[union-attr] # every handler has one
            lines = list(self._lines)
        found = [
            line
            for line in lines
            if line["number"] > number
            and levels[line["level"].upper()] >= least
            and wanted.lower() in line["text"].lower()
        ]
        return {"lines": found, "last": lines[-1]["number"] if lines else 0}
