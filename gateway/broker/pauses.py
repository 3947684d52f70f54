"""Pauses of publishers whose publication was refused for now.

In: a client that was refused, with the bound; a client whose publication was accepted. Out: the
time until which publications of a client wait.

Rules: the first pause is FIRST_S long. Each further refusal doubles the pause, up to LONGEST_S. If
the client reconnects within the pause, the time until then does not count, up to AWAY_S: paho and
mqtt.js wait a second before they reconnect. A refusal within a running pause changes nothing. If a
publication that needs the same bound is accepted, the doubling ends. A pause that ended KEPT_S ago
is forgotten.

All clients without an identifier of one user at one address share a record (`Pause.shared`). The
least recently used of MOST records is deleted, and its client begins again with FIRST_S.
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
"""Seconds for which a pause is still shown after its end, because the client may be about to retry.
"""
MOST = 16_384

EACH_BYTES = 65_536
"""Largest number of bytes of publications that are postponed for one connection. Beyond it, the
gateway stops reading until the pause is over.
"""
PART = 8
"""Divisor: the part of limits.memory_bytes for postponed publications."""
_RUN_BYTES = 512
"""Overhead of a run in memory, in bytes."""

_OF_THE_SPOOL = (Bound.SPOOL, Bound.SECOND_DISK, Bound.DISK)
"""Bounds that have room again if any publication for the spool is accepted."""

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
        """The topic of the last refused publication."""

    def over(self, now: float) -> float:
        """Return the time until which a client that reconnects now must wait."""
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
        """Begin a pause, unless one is running."""
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
        """End the doubling, because a publication of the client was accepted."""
        self._records.pop(key, None)

    def waiting(self, now: float) -> Counter[Bound | None]:
        """Count the clients paused now or within SHOWN_S before, by the bound that refused."""
        return Counter(item.bound for item in self._records.values() if now < item.until + SHOWN_S)


def client_key(user: str | None, client: str, address: str = "") -> int:
    """Return the key of a client. address: for a client without an identifier. The key is a hash,
    so that long names take no memory; two clients collide with a probability of 2^-64.
    """
    return hash((user, client, address))


class Pause:
    """The pause of one connection after a refusal. Publications at QoS 1 and 2 are postponed until
    `until`: they have no effect, and their packet identifiers are not kept. All other packets are
    handled as usual: PINGREQ, acknowledgements, subscriptions, QoS 0.
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
        """Record of the client; None once a publication was accepted."""
        self.shared = shared
        """Whether the record belongs to all clients without an identifier at this address. In that
        case a publication is not postponed: if there is room, it is accepted at once. Only a
        connection whose publication is refused within the pause stays open until the pause is over.
        """
        self.until = record.over(now) if record is not None and not shared else float("-inf")
        """End of the pause on this connection, on the time axis."""
        self.farewell = ""
        """Reason String of the connection's end; empty while the connection continues. Once it is
        set, publications at QoS 1 and 2 are dropped without an answer, and the client sends them
        again.
        """
        self.reason: ReasonCode | None = None
        """Reason code for the end of the connection."""
        self.bound: Bound | None = None
        self.topic = ""
        """Bound and topic of the publication that ends the connection (see `Record`)."""
        self.after = 0
        """The commit that the last acknowledgement before the end waits for."""
        self.put_off: deque[tuple[PublishRun, _Identity | None]] = deque()
        """Publications that arrived within the pause, in order."""
        self.size = 0
        """Bytes of the postponed publications."""

    def keep(self, run: PublishRun, identity: _Identity | None) -> int:
        """Postpone a run. Return its size in bytes."""
        size = _size(run)
        self.put_off.append((run, identity))
        self.size += size
        return size

    def next(self) -> tuple[PublishRun, _Identity | None, int]:
        """Remove and return the first postponed run, with its size in bytes."""
        run, identity = self.put_off.popleft()
        size = _size(run)
        self.size -= size
        return run, identity, size

    def took(self, topic: str, spooled: bool) -> bool:
        """Whether an accepted publication shows that the client's bound has room again."""
        record = self.record
        return record is not None and (
            topic == record.topic or (spooled and record.bound in _OF_THE_SPOOL)
        )


def _size(run: PublishRun) -> int:
    return len(run.raw) + len(run.properties) + _RUN_BYTES
