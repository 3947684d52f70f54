"""Keep Alive of a connection: when a PINGREQ is due, and when the connection counts as dead.

In: the time, in seconds of any monotonic clock, and a call for each packet that is sent or
received. Out: a PINGREQ, the time until the next check, and the reason to close the connection.
"""

from onceway_publisher.packets import PING

ANSWER_S = 15.0
"""Longest time for a connection, a CONNACK, a PINGRESP, or a write to the socket, in seconds."""
STALLED_S = 120.0
"""Longest time without an acknowledgement while messages are in flight, in seconds. A gateway
without room pauses a client for half a minute at most."""


class Alive:
    """The times by which one connection counts as alive or dead. keep_alive: Keep Alive in seconds;
    0 for none.
    """

    def __init__(self, keep_alive: float, now: float) -> None:
        self._every = keep_alive / 2 if keep_alive else float("inf")
        self._sent = self._answered = now
        self._pinged: float | None = None

    def ping(self, now: float, sends: bool) -> bytes:
        """Return a PINGREQ if one is due, else no bytes. sends: whether other bytes are sent now.
        If no PINGREQ is due, these bytes postpone the next one [MQTT-3.1.2-20].
        """
        if self._pinged is not None or now - self._sent < self._every:
            self._sent = now if sends else self._sent
            return b""
        self._sent = self._pinged = now
        return PING

    def heard(self, now: float, acknowledgement: bool) -> None:
        self._pinged = None
        if acknowledgement:
            self._answered = now

    def wait(self, now: float, in_flight: bool) -> float:
        """Return the seconds until the next call of `ping` or `silence` is needed."""
        if not in_flight:
            self._answered = now
        ends = self._sent + self._every if self._pinged is None else self._pinged + ANSWER_S
        return max(0.0, min(ends, self._answered + STALLED_S) - now)

    def silence(self, now: float, in_flight: bool) -> str | None:
        """Return the reason why the connection counts as dead, or None. in_flight: whether a
        message waits for its acknowledgement.
        """
        if self._pinged is not None and now - self._pinged >= ANSWER_S:
            return f"the gateway was silent for {ANSWER_S:g} s"
        if in_flight and now - self._answered >= STALLED_S:
            return f"the gateway acknowledged nothing for {STALLED_S:g} s"
        return None
