"""The log of the ingest on standard error. Each message is one line, even if it quotes a folder's
name with line feeds.
"""

import logging
import sys

from gateway.system.gateway_name import shown


class OneLine(logging.Formatter):
    """A formatter that escapes unprintable characters in the message, line breaks included. A
    traceback after the message keeps its lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        return shown(super().formatMessage(record))


def to_stderr(form: str, level: int) -> None:
    """Send the log to standard error, unless the root logger has a handler already. form: format of
    a line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(form))
    logging.basicConfig(handlers=[handler], level=level)
