"""Find what makes the other broker close the connection.

In: keys sent and answered on each connection, and how the connection ended. Out: which message is
guilty: the one at which the other broker has closed the connection `TIMES` times.

A broker that goes down closes connections, too, and takes no offence at any message. So after the
first close every message in flight is a suspect, and suspects are tried alone:

    in flight when a connection closed     → suspect, with one close
    next connection                        → holds for a while without any message; what closes it
                                             now is no message's fault
    then one suspect after the other       → acknowledged: no suspect any more
                                           → closed while it alone was in flight, soon after
                                             it left: one close more
    `TIMES` closes                         → guilty

What is subscribed is tried in the same way. Whoever uses this sends suspects alone, guilty ones
never, and nothing else while `on_trial`.
"""

from collections.abc import Hashable, Iterable

TIMES = 3
"""Closes that make a message guilty."""
HOLD_S = 1.0
"""How long a connection has to hold before a suspect is sent."""
ANSWER_S = 3.0
"""How long to wait for the answer to a request on such a connection."""
SOON_S = 15.0
"""A close that comes later after the PUBLISH has other reasons."""
SLOWEST = 1_000
"""Bytes a second that the slowest line carries: a long message takes longer to arrive."""


class Suspects:
    """Suspects of one bridge. Keys are packet identifiers of messages, and requests."""

    def __init__(self) -> None:
        self._closes: dict[Hashable, int] = {}
        """Closes by suspect."""
        self._in_flight: dict[Hashable, float] = {}
        """Keys sent on this connection and not answered, each with the time until which a close
        counts."""
        self.in_a_row = 0
        """Guilty ones since the last message that was acknowledged."""

    @property
    def on_trial(self) -> bool:
        """Whether suspects have to be sent alone."""
        return bool(self._closes)

    def sent(self, key: Hashable, size: int, now: float) -> None:
        """A message or request has left. size: its bytes."""
        self._in_flight[key] = now + SOON_S + size / SLOWEST

    def answered(self, key: Hashable) -> None:
        """The other broker has acknowledged a message or request, or refused it."""
        self._in_flight.pop(key, None)
        self._closes.pop(key, None)

    def message_taken(self) -> None:
        """The other broker has acknowledged a message: it takes some."""
        self.in_a_row = 0

    def suspected(self, key: Hashable) -> bool:
        """Return True if something has to be sent alone."""
        return key in self._closes

    def guilty(self, key: Hashable) -> bool:
        """Return True if something must not be sent again."""
        return self._closes.get(key, 0) >= TIMES

    def convict(self, key: Hashable) -> None:
        """A guilty one was dealt with."""
        del self._closes[key]
        self.in_a_row += 1

    def ended(self, blamed: bool, now: float) -> None:
        """The connection has ended. blamed: the other broker closed the connection, and did not say
        that anything but a message was the reason.
        """
        in_flight, self._in_flight = self._in_flight, {}
        if blamed:
            for key, soon in in_flight.items():
                if now <= soon:
                    self._closes[key] = self._closes.get(key, 0) + 1

    def keep(self, keys: Iterable[Hashable]) -> None:
        """Forget every suspect that is not among `keys`: it will not be sent again."""
        kept = set(keys)
        self._closes = {key: closes for key, closes in self._closes.items() if key in kept}
