"""The log line about an exception in a call that serves one connection.

In: the connection, the exception, and what was being done. Out: one line with the traceback, once
per burst. The connection ends, and nothing else does (`README.md`, "Where an exception ends").
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gateway.system.logs import about

if TYPE_CHECKING:
    from gateway.broker.core import Core
    from gateway.broker.session import Attached

log = logging.getLogger(__name__)

INTERNAL_ERROR = "internal error"
"""Why such a connection ends, as the log of connections says it."""


def blame(core: Core, connection: Attached, error: Exception, doing: str) -> None:
    """Log why a connection ends. doing: what was being done, as a clause behind "while"."""
    found = f"{type(error).__name__}: {error}"
    if core.log_throttle.allows(f"{doing} {type(error).__name__} {connection.name}"):
        log.error(
            "%s: connection closed after an internal error while %s (%s)",
            connection.name,
            doing,
            found,
            exc_info=error,
            extra=about(**connection.about, reason="internal_error"),
        )
