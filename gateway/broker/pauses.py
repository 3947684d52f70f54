"""Pauses of publishers whose publication was refused for now.

In: a client that was refused, with the bound; a client whose publication was accepted. Out: the
time until which publications of a client wait.

Rules: the first pause is FIRST_S long. Each further refusal doubles the pause, up to LONGEST_S. If
the client reconnects within the pause, the time without a connection, up to AWAY_S seconds, does
not count: paho and mqtt.js wait a second before they reconnect. A refusal within a running pause
changes nothing. If a publication that needs the same bound is accepted, the next pause is FIRST_S
long again. A pause that ended KEPT_S ago is forgotten.

The clients of one user at one address that have no identifier share a record (`pause.py`). Beyond
MOST records, the least recently used one is deleted: its client begins again with FIRST_S.
"""

from __future__ import annotations

from collections import Counter

from gateway.broker.lack import Bound

FIRST_S = 1.0
LONGEST_S = 30.0
AWAY_S = 1.0
KEPT_S = 60.0
SHOWN_S = 5.0
"""Seconds for which a pause is still shown after its end: the client may be about to retry."""
MOST = 16_384


class Record:
    """The last pause of one client."""

    __slots__ = ("bound", "seconds", "topic", "until")

    def __init__(self) -> None:
        self.seconds = 0.0
        """Length of the last pause, in seconds."""
        self.until = float("-inf")
        """The end of the last pause, on the time axis."""
        self.bound: Bound | None = None
        """The bound that caused the last refusal. None: the publication itself was refused."""
        self.topic = ""
        """The topic of the last refused publication."""

    def over(self, now: float) -> float:
        """Return the end of the pause if the client reconnects now: at most AWAY_S later."""
        if now >= self.until:
            return self.until
        away = now - (self.until - self.seconds)
        return self.until + min(away, AWAY_S)


class Pauses:
    """The records of all clients, by `client_key`, the most recently used last."""

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}

    def of(self, key: int, now: float) -> Record | None:
        """Return the record of a client, or None if its last pause ended long ago."""
        record = self._records.get(key)
        if record is not None and now > record.until + KEPT_S:
            del self._records[key]
            return None
        return record

    def refused(self, key: int, now: float, bound: Bound | None, topic: str) -> Record:
        """Begin a pause of a client, unless one is running. Return the client's record."""
        record = self.of(key, now) or Record()
        self._records.pop(key, None)
        self._records[key] = record
        if len(self._records) > MOST:
            del self._records[next(iter(self._records))]
        if now >= record.until:
            record.seconds = min(max(FIRST_S, 2 * record.seconds), LONGEST_S)
            record.until = now + record.seconds
        record.bound, record.topic = bound, topic
        return record

    def forget(self, key: int) -> None:
        self._records.pop(key, None)

    def waiting(self, now: float) -> Counter[Bound | None]:
        """Count the clients paused now or in the last SHOWN_S, by the bound that refused them."""
        return Counter(item.bound for item in self._records.values() if now < item.until + SHOWN_S)


def client_key(user: str | None, client: str, address: str = "") -> int:
    """Return the key of a client. address: given for a client without an identifier. The key is a
    hash, so that long names take no memory; two clients collide with a probability of 2^-64.
    """
    return hash((user, client, address))
