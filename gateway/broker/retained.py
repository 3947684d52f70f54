"""Retained messages (MQTT 5, section 3.3.1.3): the last one of each topic.

Rules: a retained PUBLISH replaces what its topic had [MQTT-3.3.1-5]; an empty payload removes it
[MQTT-3.3.1-6]; a new subscription gets those that match its filter with RETAIN set; an expired one
is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.mqtt.topics import topic_matches

if TYPE_CHECKING:
    from gateway.broker.commit import RetainedRow


@dataclass(frozen=True, slots=True)
class Retained:
    """client: who published it. expires: on the broker's time axis, or None. properties: encoded,
    without length.
    """

    topic: str
    client: str
    qos: int
    payload: bytes
    properties: bytes = b""
    expires: float | None = None

    @property
    def size(self) -> int:
        """Bytes, for the bounds."""
        return len(self.payload) + len(self.topic) + len(self.properties)

    def row(self) -> RetainedRow:
        expires = None if self.expires is None else int(self.expires * 1000)
        return self.topic, self.client, self.qos, self.properties, expires, self.payload


class RetainedMessages:
    """By topic, and in a tree by first levels, so that a filter looks at few of them. count: how
    many there are; size: their bytes.
    """

    def __init__(self) -> None:
        self._all: dict[str, Retained] = {}
        self._by_root: dict[str, dict[str, Retained]] = {}
        self.size = 0

    @property
    def count(self) -> int:
        return len(self._all)

    def get(self, topic: str) -> Retained | None:
        return self._all.get(topic)

    def fits(self, topic: str, size: int, most: int, most_bytes: int) -> bool:
        """Whether a message of this size may be kept for a topic. most, most_bytes: of all."""
        known = self._all.get(topic)
        if known is None:
            return len(self._all) < most and self.size + size <= most_bytes
        return size <= known.size or self.size - known.size + size <= most_bytes

    def put(self, message: Retained) -> None:
        known = self._all.get(message.topic)
        self.size += message.size - (known.size if known else 0)
        self._all[message.topic] = message
        self._by_root.setdefault(_root(message.topic), {})[message.topic] = message

    def remove(self, topic: str) -> bool:
        """True when there was one."""
        known = self._all.pop(topic, None)
        if known is None:
            return False
        self.size -= known.size
        root = _root(topic)
        del self._by_root[root][topic]
        if not self._by_root[root]:
            del self._by_root[root]
        return True

    def matching(self, topic_filter: str, now: float) -> list[Retained]:
        """Those that a filter matches and that have not expired, in the order in which their topics
        first came.
        """
        return [
            item
            for item in self._candidates(topic_filter)
            if item.expires is None or item.expires > now
        ]

    def expired(self, now: float) -> list[str]:
        """Topics whose message has expired."""
        return [
            item.topic
            for item in self._all.values()
            if item.expires is not None and item.expires <= now
        ]

    def _candidates(self, topic_filter: str) -> Iterator[Retained]:
        if "+" not in topic_filter and "#" not in topic_filter:
            found = self._all.get(topic_filter)
            if found is not None:
                yield found
            return
        root = _root(topic_filter)
        pool = self._all if root in "+#" else self._by_root.get(root, {})
        for topic, message in pool.items():
            if topic_matches(topic_filter, topic):
                yield message


def _root(topic: str) -> str:
    return topic.partition("/")[0]
