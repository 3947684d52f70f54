"""Refusals to clients, and connections that end because of an internal error: counted, and logged
once per burst.

The caller answers the client. An internal error ends the connection that met it, and nothing else
(`README.md`, "Where an exception ends")."""

from __future__ import annotations

import logging

from gateway.broker.core import Core
from gateway.broker.ledger import Request
from gateway.broker.session import Attached
from gateway.mqtt.reason import ReasonCode
from gateway.system.logs import about
from gateway.system.usage import origin

log = logging.getLogger(__name__)


def refused(
    core: Core,
    connection: Attached,
    request: Request,
    reason: ReasonCode,
    text: str,
    count: int = 1,
) -> None:
    """Count `count` refused requests and log the refusal. Do nothing if `reason` is below 0x80."""
    if reason < ReasonCode.UNSPECIFIED_ERROR:
        return
    core.statistics.refuse(request, reason, count)
    say(core, connection, reason, f"{request.upper()} refused, {text}")


def say(core: Core, connection: Attached, reason: ReasonCode, text: str) -> None:
    """Log a client's problem, once per burst. Until the client is let in, bursts count by address,
    because anyone can invent a client identifier.
    """
    key = connection.client if connection.session is not None else origin(connection.peer.address)
    if core.log_throttle.allows(f"{reason} {key}"):
        log.warning(
            "%s: %s (0x%02X)",
            connection.name,
            text,
            reason,
            extra=about(**connection.about, reason=reason.name.lower()),
        )


def words(reason: ReasonCode) -> str:
    """Return a reason code in words, such as `quota exceeded`."""
    return reason.name.lower().replace("_", " ")


INTERNAL_ERROR = "internal error"
"""Reason, in the log of connections, for a close after an internal error."""


def blame(core: Core, connection: Attached, error: Exception, doing: str) -> None:
    """Log why a connection ends. doing: the work that failed, as words that follow "while"."""
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
