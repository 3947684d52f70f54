"""Retained messages (MQTT 5, section 3.3.1.3): the last one of each topic.

Rules: a retained PUBLISH replaces what its topic had [MQTT-3.3.1-5]; an empty payload removes it
[MQTT-3.3.1-6]; a new subscription gets those that match its filter with RETAIN set; an expired one
is gone.

Where several gateways share them, each has a version, and a message that was removed leaves a
deletion behind, a `Retained` without payload, so that nobody brings it back who has not heard of
that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.broker.store_rows import RetainedRow

_DELETION = 200
"""Bytes that a deletion takes beside its topic."""


@dataclass(frozen=True, slots=True)
class Retained:
    topic: str
    client: str
    """Who published it."""
    qos: int
    payload: bytes
    properties: bytes = b""
    """Encoded, without length."""
    expires: float | None = None
    """On the broker's time axis, or None; of a deletion, when it may be forgotten."""
    version: int = 0
    """Of all that the gateways have for a topic the highest one holds
    (`retained_changes.py`). 0: not shared."""

    @property
    def size(self) -> int:
        """Bytes, for the bounds."""
        return len(self.payload) + len(self.topic) + len(self.properties)

    def row(self) -> RetainedRow:
        expires = None if self.expires is None else int(self.expires * 1000)
        head = self.topic, self.client, self.qos, self.properties
        return *head, expires, self.payload, self.version


class RetainedMessages:
    """By topic, and in order of topics, so that a filter looks at those only that begin as it
    does.
    """

    def __init__(self) -> None:
        self.shared = False
        """With other gateways."""
        self.watch: Callable[[str], None] | None = None
        """Called with each topic of which something changes."""
        self._all: dict[str, Retained] = {}
        self.deletions: OrderedDict[str, Retained] = OrderedDict()
        """The oldest first, about."""
        self.deletion_bytes = 0
        self._topics: list[str] = []
        """All topics, sorted."""
        self._expiring: set[str] = set()
        """Topics whose message expires some time."""
        self.size = 0
        """Bytes of all messages."""

    @property
    def count(self) -> int:
        return len(self._all)

    def get(self, topic: str) -> Retained | None:
        return self._all.get(topic)

    def latest(self, topic: str) -> Retained | None:
        """The message of a topic, or its deletion."""
        return self._all.get(topic) or self.deletions.get(topic)

    def everything(self) -> Iterator[Retained]:
        """Messages and deletions."""
        yield from self._all.values()
        yield from self.deletions.values()

    def fits(self, topic: str, size: int, most: int, most_bytes: int) -> bool:
        """Whether a message of this size may be kept for a topic. most, most_bytes: of all."""
        known = self._all.get(topic)
        if known is None:
            return len(self._all) < most and self.size + size <= most_bytes
        return size <= known.size or self.size - known.size + size <= most_bytes

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
        self.size += message.size - (known.size if known else 0)
        self._all[topic] = message
        if message.expires is not None:
            self._expiring.add(topic)
        elif self._expiring:
            self._expiring.discard(topic)
        if self.watch is not None:
            self.watch(topic)

    def remove(self, topic: str) -> bool:
        """True when there was one."""
        known = self._all.pop(topic, None)
        if known is None:
            return False
        self.size -= known.size
        del self._topics[bisect_left(self._topics, topic)]
        self._expiring.discard(topic)
        if self.watch is not None:
            self.watch(topic)
        return True

    def bury(self, deletion: Retained) -> None:
        """The topic has no message any more, and that is remembered."""
        topic = deletion.topic
        self.remove(topic)
        self.forget(topic)
        self.deletions[topic] = deletion
        self.deletion_bytes += len(topic) + _DELETION
        if self.watch is not None:
            self.watch(topic)

    def forget(self, topic: str) -> None:
        """A deletion, if there is one."""
        if self.deletions.pop(topic, None) is not None:
            self.deletion_bytes -= len(topic) + _DELETION
            if self.watch is not None:
                self.watch(topic)

    def after(self, prefix: str, last: str | None, most: int) -> list[str]:
        """At most so many topics that begin with a prefix, in order, behind the topic `last`."""
        topics = self._topics
        start = bisect_left(topics, prefix) if last is None else bisect_right(topics, last)
        found = topics[start : start + most]
        if found and not found[-1].startswith(prefix):
            end = bisect_left(found, True, key=lambda topic: not topic.startswith(prefix))
            del found[end:]
        return found

    def expired(self, now: float) -> list[str]:
        """Topics whose message has expired, or whose deletion may be forgotten."""
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
