"""The log of the ingest on standard error: one line for each message, whatever a message quotes
from the landing place. Names of folders there may have line feeds.
"""

import logging
import sys

from gateway.system.gateway_name import shown


class OneLine(logging.Formatter):
    """Escapes what cannot be printed. A traceback behind the message keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return shown(super().formatMessage(record))


def to_stderr(form: str, level: int) -> None:
    """Send the log to standard error, if nobody has sent it anywhere."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(form))
    logging.basicConfig(handlers=[handler], level=level)
