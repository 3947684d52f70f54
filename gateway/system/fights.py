"""Clients that fight for one client identifier: each takes over the session of the other.

In: each takeover, with the addresses of both clients. Out: for each identifier at most one log line
a minute, and the fights of the last minute. A client that reconnects takes over its own session, so
only more than MOST_PEACEFUL takeovers in a minute count as a fight.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from gateway.system.log_throttle import LogThrottle
from gateway.system.logs import about

log = logging.getLogger(__name__)

MINUTE_S = 60.0
MOST_PEACEFUL = 5
_MOST = 1024
"""Largest number of identifiers that are watched. Beyond it, the identifier whose last takeover is
the oldest is forgotten.
"""


@dataclass(slots=True)
class _Takeovers:
    """Takeovers of one client identifier. since: beginning of the present minute. count: their
    number in this minute. was: their number in the minute before. addresses: former address and new
    address at the last takeover.
    """

    since: float
    count: int = 0
    was: int = 0
    addresses: tuple[str, str] = ("", "")

    def turn(self, now: float) -> None:
        """Begin a new minute if the current minute is over."""
        if now - self.since >= MINUTE_S:
            self.was = self.count if now - self.since < 2 * MINUTE_S else 0
            self.since, self.count = now, 0

    @property
    def most(self) -> int:
        return max(self.count, self.was)


class Fights:
    """The recent takeovers of each client identifier. now: a clock in seconds, of any origin."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: dict[str, _Takeovers] = {}
        self._throttle = LogThrottle(now)
        self._logged_at: dict[str, float] = {}

    def take_over(self, client: str, former: str, address: str) -> None:
        """Record that a connection from `address` has taken over the session of a connection from
        `former`.
        """
        now = self._now()
        found = self._known.pop(client, None) or _Takeovers(now)
        found.turn(now)
        found.count += 1
        found.addresses = former, address
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[client] = found
        if found.most <= MOST_PEACEFUL or now - self._logged_at.get(client, -MINUTE_S) < MINUTE_S:
            return
        self._logged_at.pop(client, None)
        if len(self._logged_at) >= _MOST:
            del self._logged_at[next(iter(self._logged_at))]
        self._logged_at[client] = now
        if self._throttle.has_room():
            log.warning("%s", _sentence(client, found), extra=about(client=client, address=address))

    @property
    def present(self) -> dict[str, str]:
        """Sentences about the fights of the last minute, by client identifier."""
        now, found = self._now(), {}
        for client, takeovers in self._known.items():
            takeovers.turn(now)
            if takeovers.most > MOST_PEACEFUL:
                found[client] = _sentence(client, takeovers)
        return found


def _sentence(client: str, takeovers: _Takeovers) -> str:
    one, other = sorted(takeovers.addresses)
    return (
        f"{client!r}: two clients fight for this client identifier, {one} and {other}:"
        f" {takeovers.most:,} takeovers in a minute. Give each client an identifier of its own"
    )
