"""Retained messages on their way to a session that has subscribed (MQTT 5, section 3.3.1.3).

In: filters that are subscribed to. Out: the next retained messages, with their filters, as far as
the session has room. A feed contains names and its position, never messages: the message that is
retained at the time of sending is sent. Each topic is compared once with all filters of the same
prefix.

Rules: if a filter is subscribed to again before its messages were sent, the filter counts once. A
session that reconnects continues at its position, or begins again after a power cut of the gateway.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from gateway.broker.retained import Retained, RetainedMessages
from gateway.mqtt.topics import FilterMap, split_shared

_PAGE_TOPICS = 512
"""Number of topics that one step compares with filters."""
_PAGE = 64
"""Approximate number of messages that one step finds."""


class Next(NamedTuple):
    source: RetainedMessages
    topic: str
    topic_filter: str

    @property
    def message(self) -> Retained | None:
        return self.source.get(self.topic)


class _Pass:
    """One pass through the retained topics with a prefix, for all filters with this prefix."""

    __slots__ = ("filters", "last", "source", "tree")

    def __init__(self, source: RetainedMessages) -> None:
        self.source = source
        self.filters: dict[str, None] = {}
        self.tree: FilterMap[str] | None = None
        """Tree of the filters; None if `filters` has changed since the last match."""
        self.last: str | None = None
        """The last compared topic; None before the first one."""

    def matching(self, topic: str) -> list[str]:
        if self.tree is None:
            self.tree = FilterMap()
            for topic_filter in self.filters:
                self.tree[topic_filter] = topic_filter
        return self.tree.matching(topic)


class RetainedFeed:
    def __init__(self) -> None:
        self.filters: set[str] = set()
        self.noted: set[str] = set()
        """Filters with a note in the store: their retained messages are still to be sent."""
        self.page: deque[Next] = deque()
        """Messages that were found and are sent next."""
        self._single: dict[tuple[str, str], RetainedMessages] = {}
        """Sources for the topics that are looked up by name, by topic and matching filter."""
        self._passes: dict[str, list[_Pass]] = {}
        """For each topic prefix: the current pass, and perhaps one for filters that came later."""

    def __bool__(self) -> bool:
        return bool(self.page or self._single or self._passes)

    def add(self, topic_filter: str, source: RetainedMessages) -> None:
        """Add a filter whose retained messages are to be sent."""
        self.filters.add(topic_filter)
        levels = split_shared(topic_filter)[1].split("/")
        fixed = next((at for at, level in enumerate(levels) if level in ("+", "#")), None)
        if fixed is None or (fixed and levels[fixed] == "#"):  # `a/#` also matches `a`
            self._single["/".join(levels[:fixed]), topic_filter] = source
        if fixed is None:
            return
        passes = self._passes.setdefault("/".join([*levels[:fixed], ""]), [])
        if not passes or passes[-1].last is not None:
            passes.append(_Pass(source))
        passes[-1].filters[topic_filter] = None
        passes[-1].tree = None

    def remove(self, topic_filter: str) -> None:
        self.filters.discard(topic_filter)
        self.noted.discard(topic_filter)
        self.page = deque(item for item in self.page if item.topic_filter != topic_filter)
        self._single = {key: item for key, item in self._single.items() if key[1] != topic_filter}
        for prefix, passes in list(self._passes.items()):
            for one in [one for one in passes if topic_filter in one.filters]:
                del one.filters[topic_filter]
                one.tree = None
                if not one.filters:
                    passes.remove(one)
            if not passes:
                del self._passes[prefix]

    def look(self) -> None:
        """Take the next topics and compare them with the filters. Add matches to `page`."""
        if self._single:
            for key in list(self._single)[:_PAGE]:
                self.page.append(Next(self._single.pop(key), *key))
            return
        prefix, passes = next(iter(self._passes.items()))
        one = passes[0]
        topics = one.source.after(prefix, one.last, _PAGE_TOPICS)
        for topic in topics:
            one.last = topic
            self.page += [Next(one.source, topic, item) for item in one.matching(topic)]
            if len(self.page) >= _PAGE:
                return
        if len(topics) < _PAGE_TOPICS:
            del passes[0]
            if not passes:
                del self._passes[prefix]
