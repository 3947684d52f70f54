"""What clients are refused: counted by kind and reason, and said in the log once per burst. The
client is told by whoever refuses.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gateway.broker.admission import origin
from gateway.mqtt.reason import ReasonCode
from gateway.system.logs import about

if TYPE_CHECKING:
    from gateway.broker.core import Core
    from gateway.broker.session import Attached
    from gateway.broker.statistics import Request

log = logging.getLogger(__name__)


def refused(
    core: Core,
    connection: Attached,
    request: Request,
    reason: ReasonCode,
    text: str,
    count: int = 1,
) -> None:
    """A request is answered with a failure, or not at all. count: how many of them."""
    core.statistics.refuse(request, reason, count)
    say(core, connection, reason, f"{request.upper()} refused, {text}")


def say(core: Core, connection: Attached, reason: ReasonCode, text: str) -> None:
    """Log why a client has trouble, unless that was said a moment ago. Before it is let in, its
    address counts: a client identifier can be made up.
    """
    who = connection.client if connection.session is not None else origin(connection.peer.address)
    if core.log_throttle.allows(f"{reason} {who}"):
        log.warning(
            "%s: %s (0x%02X)",
            connection.name,
            text,
            reason,
            extra=about(**connection.about, reason=reason.name.lower()),
        )


def words(reason: ReasonCode) -> str:
    """A reason code for people."""
    return reason.name.lower().replace("_", " ")
