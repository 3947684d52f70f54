"""The search for the message at which the other broker closes the connection.

In: messages and requests (*keys*) that are sent and answered on each connection, and how the
connection ended. Out: the guilty message, at which the other broker has closed the connection
`TIMES` times.

A broker that shuts down closes connections too, whatever the message. So after the first close
every message in flight is a suspect, and suspects are tried alone:

  in flight when a connection closed  → suspect, with one close
  next connection                     → stays open for a while without any message; a close now is
                                        no message's fault
  then one suspect after the other    → acknowledged: no longer a suspect
                                      → closed while it alone was in flight: one more close
  `TIMES` closes                      → guilty

A close long after several messages were sent makes new suspects, and adds no close to earlier
suspects. Many brokers process a QoS 2 message at its PUBREL, so a PUBREL is a suspect of its own
(`Release`). Filters that are subscribed to are tried in the same way. The caller sends suspects
alone, never sends guilty messages, and sends nothing else while `tries_suspects`.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

TIMES = 3
"""Number of closes that make a suspect guilty. A guilty packet is not sent any more."""
HOLD_S = 1.0
"""Seconds that a new connection must stay open before the first suspect is sent on it."""
ANSWER_S = 3.0
"""Seconds to wait for the answer to a request while suspects are tried."""
SOON_S = 15.0
"""If the connection closes within this many seconds after a packet was sent, the close counts
against the packet. A later close counts only against a packet that was alone in flight, or that is
not a suspect yet.
"""
SLOWEST = 1_000
"""Assumed speed of the slowest line, in bytes per second. For long messages, the time that they
take at this speed is added to SOON_S.
"""


@dataclass(frozen=True, slots=True)
class Release:
    """The key of a PUBREL (see `Suspects`). identifier: its packet identifier."""

    identifier: int


class Suspects:
    """Suspects of one bridge. A key is the packet identifier of a PUBLISH, a `Release` for a
    PUBREL, or a request for a SUBSCRIBE or UNSUBSCRIBE (`far_filters.Request`).
    """

    def __init__(self) -> None:
        self._closes: dict[Hashable, int] = {}
        """Number of closes that count against each suspect, by key."""
        self._in_flight: dict[Hashable, float] = {}
        """Keys that were sent on this connection and are not answered, each with a time. If the
        connection closes before this time, the close counts against the key.
        """
        self.in_a_row = 0
        """Number of guilty keys whose packets were set aside or dropped since the last acknowledged
        message."""

    @property
    def tries_suspects(self) -> bool:
        """Whether there are suspects. If so, each of them has to be sent alone."""
        return bool(self._closes)

    def sent(self, key: Hashable, size: int, now: float) -> None:
        """Note that the packet of `key` was sent. size: its length in bytes. now: seconds."""
        self._in_flight[key] = now + SOON_S + size / SLOWEST

    def answered(self, key: Hashable) -> None:
        """Note that the other broker has answered a PUBLISH, PUBREL or request. From now on, this
        packet is not a suspect.
        """
        self._in_flight.pop(key, None)
        self._closes.pop(key, None)

    def message_taken(self) -> None:
        """Note that the other broker has fully acknowledged a message."""
        self.in_a_row = 0

    def suspected(self, key: Hashable) -> bool:
        """Whether at least one close of the connection counts against a key. If so, the packet of
        the key has to be sent alone.
        """
        return key in self._closes

    def guilty(self, key: Hashable) -> bool:
        """Whether TIMES closes of the connection count against a key. If so, the key's packet must
        not be sent again.
        """
        return self._closes.get(key, 0) >= TIMES

    def forget_guilty(self, key: Hashable) -> None:
        """Forget a guilty key. Call this when the key's packet was set aside or dropped."""
        del self._closes[key]
        self.in_a_row += 1

    def ended(self, blamed: bool, now: float) -> None:
        """Handle the end of the connection. If `blamed`, the end counts against the keys in flight
        that may have caused it. blamed: whether the other broker closed the connection, and gave no
        reason or a reason that concerns a message. now: time in seconds.
        """
        in_flight, self._in_flight = self._in_flight, {}
        if blamed:
            for key, soon in in_flight.items():
                if now <= soon or len(in_flight) == 1 or key not in self._closes:
                    self._closes[key] = self._closes.get(key, 0) + 1

    def keep(self, keys: Iterable[Hashable]) -> None:
        """Forget all suspects except those in `keys`, because the packets of the others will not be
        sent again."""
        kept = set(keys)
        self._closes = {key: closes for key, closes in self._closes.items() if key in kept}
