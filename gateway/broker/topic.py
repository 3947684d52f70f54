"""Topic Names, filters, and trees of their levels (MQTT 5, section 4.7).

In: a name, checked; what a session subscribes to. Out: the name's bytes in packets, and the heads
of packets that were built for it. Filters stand in a tree of `Node`s, so those that do not match a
name cost nothing. Names stand in a `TopicIndex`, so a filter finds the names whose routes it
changes without looking at the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SHARE_PREFIX
from gateway.mqtt.wire import encode_varint

NOTICES = f"{SHARE_PREFIX}onceway/journeys"
"""What gateways tell one another of sessions that move. The name stands for shared subscriptions,
so no client can publish on it or subscribe to it."""


class Topic:
    __slots__ = ("indexed", "name", "refused", "shapes", "spooled", "stale", "wire")

    def __init__(self, name: str, wire: bytes) -> None:
        self.name = name
        self.wire = wire
        """The name as it stands in packets, its length in front."""
        self.shapes: dict[tuple[int, bool, int], tuple[bytes, bytes]] = {}
        """Heads of PUBLISH packets, by first byte, version and payload size."""
        self.indexed = False
        """The router says when its routes change."""
        self.stale = True
        """They have changed: what follows, and where its messages go, is no longer true."""
        self.spooled = False
        """Its messages go up to the landing place."""
        self.refused: ReasonCode | None = None
        """Why no message of it is taken."""


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
        """From its row in the store."""
        return cls(topic_filter, options & 3, bool(options & 4), bool(options & 8), identifier)

    @property
    def options(self) -> int:
        """As its row in the store has them."""
        return self.qos | self.no_local << 2 | self.retain_as_published << 3

    @property
    def extra(self) -> bytes:
        """The Subscription Identifier as an encoded property, empty without one."""
        return b"\x0b" + encode_varint(self.identifier) if self.identifier else b""


V = TypeVar("V")


class Node:
    """A level of a filter."""

    __slots__ = ("children",)

    def __init__(self) -> None:
        self.children: dict[str, Self] = {}

    def at(self, topic_filter: str) -> Self:
        """The node of a filter below this one, made if need be."""
        node = self
        for level in topic_filter.split("/"):
            below = node.children.get(level)
            if below is None:
                below = node.children[level] = type(self)()
            node = below
        return node

    def matching(self, name: str) -> Iterator[Self]:
        """The nodes of all filters that match a topic name. A wildcard in first place never
        matches `$…` [MQTT-4.7.2-1].
        """
        nodes = [self]
        wildcards = name[0] != "$"
        for level in name.split("/"):
            below = []
            for node in nodes:
                children = node.children
                if level in children:
                    below.append(children[level])
                if wildcards:
                    if "+" in children:
                        below.append(children["+"])
                    if "#" in children:
                        yield children["#"]
            wildcards = True
            nodes = below
        for node in nodes:
            yield node
            if "#" in node.children:
                yield node.children["#"]


class _Leaf(Node):
    __slots__ = ("value",)

    def __init__(self) -> None:
        super().__init__()
        self.value: object = None


class FilterMap(Generic[V]):
    """A value for each of some filters; asked by topic name."""

    def __init__(self) -> None:
        self._root = _Leaf()

    def __setitem__(self, topic_filter: str, value: V) -> None:
        self._root.at(topic_filter).value = value

    def matching(self, name: str) -> list[V]:
        """The values of all filters that match."""
        return [
            node.value  # type: ignore[misc]
            for node in self._root.matching(name)
            if node.value is not None
        ]


_MANY = 1024
"""Names whose routes are looked up again for one filter; when it may match more, all are."""

_DEPTH = 4
"""Levels of a name that tell it from others here; names that differ further down share a place."""


T = TypeVar("T", bound="Topic")


class _Place(Generic[T]):
    __slots__ = ("below", "topics")

    def __init__(self) -> None:
        self.below: dict[str, _Place[T]] = {}
        self.topics: list[T] = []


class TopicIndex(Generic[T]):
    """Topics whose routes are known; `invalidate` says whose routes a filter changes."""

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
        """Nobody's routes are known any more. Returns whose were."""
        for topic in self._topics:
            topic.indexed = False
            topic.stale = True
        cleared, self._topics = self._topics, []
        self._root = _Place()
        return cleared

    def invalidate(self, topic_filter: str) -> bool:
        """The sessions behind a filter have changed: the routes of names that it may match must be
        looked up again. False: there are so many that it is better to `clear`.
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
        left = _MANY
        while places:
            left -= 1
            if not left:
                return False
            place = places.pop()
            for topic in place.topics:
                topic.stale = True
            places += place.below.values()
        return True
