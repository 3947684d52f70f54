"""The log line about an exception in the code of a link.

In: the exception, and the connection, port or listener where it was raised. Out: one line with the
traceback; repetitions are throttled. The caller ends the connection, or opens the port again.
"""

import logging
import time

from gateway.system.log_throttle import LogThrottle

log = logging.getLogger(__name__)

_throttle = LogThrottle(time.monotonic)


def blame(
    where: str, error: Exception, text: str = "connection closed after an internal error"
) -> None:
    """Log an exception; the log throttle may leave out repetitions. where: address, port or
    listener. text: what the gateway does because of it.
    """
    found = f"{type(error).__name__}: {error}"
    if _throttle.allows(f"{where} {found}"):
        log.error("%s: %s (%s)", where, text, found, exc_info=error)
