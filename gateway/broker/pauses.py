"""Pauses of publishers whose publication was refused for now.

In: the client that was refused, and the bound that refused it; the client that got through. Out:
the time until which nothing more is taken from a client.

Rules: the first pause is FIRST_S long. Each further refusal doubles the pause, up to LONGEST_S. If
the client comes back within the pause, the time until then does not count, up to AWAY_S: paho and
mqtt.js wait a second before they come back. A refusal within a running pause changes nothing. A
publication that needs the same bound and is taken ends the doubling. A pause that ended KEPT_S ago
is forgotten.

A client is its user name and its client identifier. A stranger who claims the identifier of another
user is not let in, and changes no record. A client without an identifier is a stranger at each
connection: all of one user at one address share a record, and `Pause.shared` says how the record is
used then.

A record is kept for at most MOST clients. Beyond it the record that was used longest ago goes: its
client begins again with FIRST_S.
"""

from __future__ import annotations

from collections import Counter, deque

from gateway.broker.lack import Bound
from gateway.broker.publish_run import PublishRun
from gateway.mqtt.reason import ReasonCode

FIRST_S = 1.0
LONGEST_S = 30.0
AWAY_S = 1.0
KEPT_S = 60.0
SHOWN_S = 5.0
"""Seconds for which a pause is still shown after its end: its client may be about to try again."""
MOST = 16_384

EACH_BYTES = 65_536
"""Bytes of publications that one connection puts off; with more it is not read until its pause is
over."""
PART = 8
"""The publications that all connections put off may take this part of limits.memory_bytes."""
_RUN_BYTES = 512
"""Bytes that a run takes in memory beside its packets."""

_OF_THE_SPOOL = (Bound.SPOOL, Bound.SECOND_DISK, Bound.DISK)
"""Any publication for the spool shows that these have room again."""

_Identity = tuple[str, int, int]


class Record:
    """The last pause of one client."""

    __slots__ = ("bound", "seconds", "topic", "until")

    def __init__(self) -> None:
        self.seconds = 0.0
        """Length of the last pause."""
        self.until = float("-inf")
        """The end of the last pause, on the time axis."""
        self.bound: Bound | None = None
        """The bound that refused last. None: the publication itself is refused."""
        self.topic = ""
        """The topic of the publication that was refused last."""

    def over(self, now: float) -> float:
        """Return the time from which something is taken of a client that comes back now."""
        if now >= self.until:
            return self.until
        away = now - (self.until - self.seconds)
        return self.until + min(away, AWAY_S)


class Pauses:
    """The records of all clients, by `client_key`; the one that was used last comes last."""

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}

    def of(self, key: int, now: float) -> Record | None:
        """Return the record of a client, or None if it was not refused for long."""
        record = self._records.get(key)
        if record is not None and now > record.until + KEPT_S:
            del self._records[key]
            return None
        return record

    def refused(self, key: int, now: float, bound: Bound | None, topic: str) -> Record:
        """Begin a pause, unless one runs already."""
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
        """End the doubling: the client got through."""
        self._records.pop(key, None)

    def waiting(self, now: float) -> Counter[Bound | None]:
        """Count the clients that are paused, or were SHOWN_S ago, by the bound that refused them
        last.
        """
        return Counter(item.bound for item in self._records.values() if now < item.until + SHOWN_S)


def client_key(user: str | None, client: str, address: str = "") -> int:
    """Return the key of a client. address: of one without an identifier. A hash, so that long names
    take no memory: of 2^64 pairs of clients, one shares its pauses.
    """
    return hash((user, client, address))


class Pause:
    """One connection of a client that was refused.

    Publications at QoS 1 and 2 are put off until `until`: they have no effect, and their packet
    identifiers are not kept. Everything else of the client is taken as usual: PINGREQ,
    acknowledgements, subscriptions, QoS 0.
    """

    __slots__ = (
        "after",
        "bound",
        "farewell",
        "key",
        "put_off",
        "reason",
        "record",
        "shared",
        "size",
        "topic",
        "until",
    )

    def __init__(self, key: int, record: Record | None, shared: bool, now: float) -> None:
        self.key = key
        self.record = record
        """The client's record; None once it got through."""
        self.shared = shared
        """The record belongs to all clients without an identifier at this address. Then a
        publication is not put off: if there is room, it is taken at once. Only a connection whose
        publication is refused within the pause stays open until the pause is over."""
        self.until = record.over(now) if record is not None and not shared else float("-inf")
        """The end of the pause on this connection, on the time axis."""
        self.farewell = ""
        """The Reason String of the end; empty while the connection goes on. With it, publications
        at QoS 1 and 2 are thrown away without an answer: the client sends them again."""
        self.reason: ReasonCode | None = None
        """The reason code of the end."""
        self.bound: Bound | None = None
        self.topic = ""
        """Bound and topic as in `Record`, of the publication that ends the connection."""
        self.after = 0
        """The commit that the last acknowledgement before that waits for."""
        self.put_off: deque[tuple[PublishRun, _Identity | None]] = deque()
        """Publications that came within the pause, in order."""
        self.size = 0
        """Bytes of them."""

    def keep(self, run: PublishRun, identity: _Identity | None) -> int:
        """Put a run off. Returns its bytes."""
        size = _size(run)
        self.put_off.append((run, identity))
        self.size += size
        return size

    def next(self) -> tuple[PublishRun, _Identity | None, int]:
        """Take the first run that was put off, and its bytes."""
        run, identity = self.put_off.popleft()
        size = _size(run)
        self.size -= size
        return run, identity, size

    def took(self, topic: str, spooled: bool) -> bool:
        """Whether a publication that was taken shows that the client gets through again."""
        record = self.record
        return record is not None and (
            topic == record.topic or (spooled and record.bound in _OF_THE_SPOOL)
        )


def _size(run: PublishRun) -> int:
    return len(run.raw) + len(run.properties) + _RUN_BYTES
