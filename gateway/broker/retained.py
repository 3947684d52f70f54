"""Retained messages (MQTT 5, section 3.3.1.3): the last one of each topic.

Rules: a retained PUBLISH replaces the message of its topic [MQTT-3.3.1-5]; an empty payload removes
it [MQTT-3.3.1-6]. A new subscription gets the messages that match its filter, with RETAIN set. An
expired message is removed.

If several gateways share the messages, each message has a version. A removed message is replaced by
a deletion, a `Retained` without payload, so that a gateway that missed the removal cannot bring the
message back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gateway.broker.store_rows import RetainedRow
from gateway.config import LimitsSection
from gateway.system.usage import Origin, within

_DELETION = 200
"""Overhead of a deletion in addition to its topic, in bytes."""


@dataclass(frozen=True, slots=True)
class Retained:
    topic: str
    client: str
    """Client identifier of the publisher."""
    qos: int
    payload: bytes
    properties: bytes = b""
    """Encoded properties, without the property length."""
    expires: float | None = None
    """Time of expiry on the broker's time axis, or None; for a deletion, the time at which it may
    be forgotten."""
    version: int = 0
    """Version of the message: among all gateways, the highest version of a topic is valid
    (`retained_changes.py`). 0: not shared."""
    origin: Origin | None = field(default=None, compare=False)
    """Origin of the client that published the message, or None."""

    @property
    def size(self) -> int:
        """Size in bytes, as counted against bounds."""
        return len(self.payload) + len(self.topic) + len(self.properties)

    def row(self) -> RetainedRow:
        expires = None if self.expires is None else int(self.expires * 1000)
        head = self.topic, self.client, self.qos, self.properties
        return *head, expires, self.payload, self.version


class RetainedMessages:
    """Retained messages, sorted by topic, so that a filter visits only topics with its prefix."""

    def __init__(self) -> None:
        self.shared = False
        """Whether the messages are shared with peer gateways."""
        self.watch: Callable[[str], None] | None = None
        """Callback that is called with each topic whose retained message changes."""
        self._all: dict[str, Retained] = {}
        self.deletions: OrderedDict[str, Retained] = OrderedDict()
        """Records of deletions by topic, in the order in which they were added."""
        self.deletion_bytes = 0
        self._topics: list[str] = []
        self._expiring: set[str] = set()
        self.size = 0
        """Total size of all messages, in bytes."""

    @property
    def count(self) -> int:
        return len(self._all)

    def get(self, topic: str) -> Retained | None:
        return self._all.get(topic)

    def latest(self, topic: str) -> Retained | None:
        """Return the message of a topic, else the record of its deletion, else None."""
        return self._all.get(topic) or self.deletions.get(topic)

    def everything(self) -> Iterator[Retained]:
        """Yield all messages and all records of deletions."""
        yield from self._all.values()
        yield from self.deletions.values()

    def fits(
        self, topic: str, size: int, limits: LimitsSection, origin: Origin | None = None
    ) -> bool:
        """Whether there is room for a message of this size from a client of this origin."""
        most, most_bytes = limits.retained, limits.retained_bytes
        known = self._all.get(topic)
        replaced = 0 if known is None else known.size
        if (known is None or size > replaced) and (
            (known is None and len(self._all) >= most) or self.size + size - replaced > most_bytes
        ):
            return False
        if origin is None:
            return True
        own = replaced if known is not None and known.origin is origin else 0
        return size <= own or (
            within(origin.retained + (not own), most)
            and within(origin.retained_bytes + size - own, most_bytes)
        )

    def put(self, message: Retained) -> None:
        topic = message.topic
        if self.deletions:
            self.forget(topic)
        known = self._all.get(topic)
        if known is None:
            if self._topics and topic < self._topics[-1]:
                insort(self._topics, topic)
            else:
                self._topics.append(topic)
        else:
            self._count(known, -1)
        self._count(message, 1)
        self._all[topic] = message
        if message.expires is not None:
            self._expiring.add(topic)
        elif self._expiring:
            self._expiring.discard(topic)
        if self.watch is not None:
            self.watch(topic)

    def remove(self, topic: str) -> bool:
        """Remove the message of a topic. Return False if there was none."""
        known = self._all.pop(topic, None)
        if known is None:
            return False
        self._count(known, -1)
        del self._topics[bisect_left(self._topics, topic)]
        self._expiring.discard(topic)
        if self.watch is not None:
            self.watch(topic)
        return True

    def _count(self, message: Retained, sign: int) -> None:
        self.size += sign * message.size
        if message.origin is not None:
            message.origin.retained += sign
            message.origin.retained_bytes += sign * message.size

    def put_deletion(self, deletion: Retained) -> None:
        """Replace the message of a topic by the record of its deletion."""
        topic = deletion.topic
        self.remove(topic)
        self.forget(topic)
        self.deletions[topic] = deletion
        self.deletion_bytes += len(topic) + _DELETION
        if self.watch is not None:
            self.watch(topic)

    def forget(self, topic: str) -> None:
        """Forget that the message of a topic was deleted, if this is recorded."""
        if self.deletions.pop(topic, None) is not None:
            self.deletion_bytes -= len(topic) + _DELETION
            if self.watch is not None:
                self.watch(topic)

    def after(self, prefix: str, last: str | None, most: int) -> list[str]:
        """Return up to `most` topics with a prefix, in order, after the topic `last`."""
        topics = self._topics
        start = bisect_left(topics, prefix) if last is None else bisect_right(topics, last)
        found = topics[start : start + most]
        if found and not found[-1].startswith(prefix):
            end = bisect_left(found, True, key=lambda topic: not topic.startswith(prefix))
            del found[end:]
        return found

    def expired(self, now: float) -> list[str]:
        """Return topics whose message has expired, or whose deletion may be forgotten."""
        expired = [
            topic
            for topic in self._expiring
            if (expires := self._all[topic].expires) is not None and expires <= now
        ]
        for topic, deletion in self.deletions.items():
            if deletion.expires is None or deletion.expires > now:
                break
            expired.append(topic)
        return expired
