"""Topics and subscriptions, and the index of the topics that a filter may match (MQTT 5, 4.7).

In: a checked Topic Name; the filters of subscriptions. Out: the name's bytes in packets, and cached
headers of packets. Names are in a `TopicIndex`, so a new filter finds the names whose routes it
changes without visiting other names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SHARE_PREFIX
from gateway.mqtt.wire import encode_varint

NOTICES = f"{SHARE_PREFIX}onceway/journeys"
"""Topic of the gateways' messages about sessions that move. The name looks like a shared
subscription, so no client can publish or subscribe to it."""


class Topic:
    __slots__ = ("indexed", "name", "refused", "shapes", "spooled", "stale", "wire")

    def __init__(self, name: str, wire: bytes) -> None:
        self.name = name
        self.wire = wire
        """The name in its encoded form, with its length in front."""
        self.shapes: dict[tuple[int, bool, int], tuple[bytes, bytes]] = {}
        """Cached results of `PublishRun.shape`, by first byte, MQTT 5 or not, and payload size."""
        self.indexed = False
        """Whether the router marks the topic as stale when its routes change."""
        self.stale = True
        """Whether routes, `spooled` and `refused` are outdated after a change of subscriptions."""
        self.spooled = False
        """Whether messages of the topic are spooled for the uplink."""
        self.refused: ReasonCode | None = None
        """Reason why messages of the topic are refused, or None."""


@dataclass(frozen=True, slots=True)
class Subscription:
    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    """Subscription Identifier, 0 for none."""

    @classmethod
    def stored(cls, topic_filter: str, options: int, identifier: int) -> Subscription:
        """Return a subscription from its row in the store."""
        return cls(topic_filter, options & 3, bool(options & 4), bool(options & 8), identifier)

    @property
    def options(self) -> int:
        """The options as one number, as in `SubscriptionRow`."""
        return self.qos | self.no_local << 2 | self.retain_as_published << 3

    @property
    def extra(self) -> bytes:
        """The Subscription Identifier as an encoded property, empty without one."""
        return b"\x0b" + encode_varint(self.identifier) if self.identifier else b""


_MANY = 1024
"""Rough bound of the index entries that `invalidate` visits. Beyond this, it returns False."""

_DEPTH = 4
"""Number of levels of a name that the index distinguishes. Deeper levels share an entry."""


T = TypeVar("T", bound="Topic")


class _Place(Generic[T]):
    __slots__ = ("below", "topics")

    def __init__(self) -> None:
        self.below: dict[str, _Place[T]] = {}
        self.topics: list[T] = []


class TopicIndex(Generic[T]):
    """An index of the topics whose routes are known. Finds the topics that a filter may match."""

    def __init__(self) -> None:
        self._root: _Place[T] = _Place()
        self._topics: list[T] = []

    def __len__(self) -> int:
        return len(self._topics)

    def add(self, topic: T) -> None:
        place = self._root
        for level in topic.name.split("/", _DEPTH)[:_DEPTH]:
            below = place.below.get(level)
            if below is None:
                below = place.below[level] = _Place()
            place = below
        place.topics.append(topic)
        topic.indexed = True
        self._topics.append(topic)

    def clear(self) -> list[T]:
        """Remove all topics from the index, and mark them as stale. Return these topics."""
        for topic in self._topics:
            topic.indexed = False
            topic.stale = True
        cleared, self._topics = self._topics, []
        self._root = _Place()
        return cleared

    def invalidate(self, topic_filter: str) -> bool:
        """Mark the topics that may match a filter as stale, because the filter's sessions have
        changed. Return False if too many topics match; `clear` is better then.
        """
        places = [self._root]
        for level in topic_filter.split("/", _DEPTH)[:_DEPTH]:
            if level == "#":
                return self._all_below(places)
            if level == "+":
                places = [below for place in places for below in place.below.values()]
            else:
                places = [place.below[level] for place in places if level in place.below]
            if len(places) > _MANY:
                return False
        for place in places:
            for topic in place.topics:
                topic.stale = True
        return True

    def _all_below(self, places: list[_Place[T]]) -> bool:
        remaining = _MANY
        while places:
            remaining -= 1
            if not remaining:
                return False
            place = places.pop()
            for topic in place.topics:
                topic.stale = True
            places += place.below.values()
        return True
