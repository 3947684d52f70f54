"""Log lines on standard error, for people or for machines.

In: log records, with optional fields in addition to the text: `extra=about(client=…, reason=…)`.
Out: one line for each record; for people, a traceback may follow the line. Text that a client
chose, such as its identifier, cannot break a line or move the cursor: control characters are
escaped. Under systemd each line begins with its priority (sd-daemon(3)), so that `journalctl -p
warning` finds it.
"""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from gateway.system.log_flood import LogFlood

_CONTROL: dict[int, str] = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))
} | {0x2028: "\\u2028", 0x2029: "\\u2029"}
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


class Form(StrEnum):
    """The form of log lines: for people or for programs."""

    HUMAN = "human"
    JSON = "json"


def about(**fields: str | int | float | None) -> dict[str, Any]:
    """Return fields of a log record, for `extra`. In JSON they are separate keys; for people they
    are not added to the text. Fields with `None` are left out.
    """
    return {"about": {key: value for key, value in fields.items() if value is not None}}


def printable(text: str) -> str:
    """Return a text with its control characters escaped: parts of it may come from clients."""
    return text.translate(_CONTROL)


class HumanFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = printable(f"{record.levelname} {record.name}: {record.getMessage()}")
        if record.exc_info:  # its lines are indented, so that none of them looks like a record
            text += "".join(
                f"\n  {printable(line)}"
                for line in self.formatException(record.exc_info).splitlines()
            )
        return text


class JsonFormatter(logging.Formatter):
    """Formatter of log records as lines of JSON. `time` is UTC by the system's clock."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        } | getattr(record, "about", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _JournalFormatter(logging.Formatter):
    """A formatter for systemd's journal. It puts the priority in front of each line of another
    formatter.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in self._inner.format(record).split("\n"))


def configure(
    form: Form,
    level: str | None,
    talkative: tuple[str, ...] = (),
    flood: LogFlood | None = None,
) -> None:
    """Log to standard error from now on. level: the lowest level; None: WARNING, and INFO for the
    loggers named in `talkative`. flood: the limit of lines, for a program to which anybody can
    connect.
    """
    formatter = JsonFormatter() if form is Form.JSON else HumanFormatter()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JournalFormatter(formatter) if _to_journal() else formatter)
    if flood is not None:
        handler.addFilter(flood)
    logging.basicConfig(handlers=[handler], level=(level or "warning").upper(), force=True)
    for name in talkative if level is None else ():
        logging.getLogger(name).setLevel(logging.INFO)


def _to_journal() -> bool:
    """Return whether standard error goes to systemd's journal (systemd.exec(5), JOURNAL_STREAM)."""
    try:
        error = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{error.st_dev}:{error.st_ino}"
