"""Retained messages on their way to a session that has subscribed (MQTT 5, section 3.3.1.3).

In: filters, as they are subscribed to. Out: which retained messages are next, for which filters, as
far as the session has room for them. A feed holds names and how far it has come, never messages:
what is sent is what is retained by then. However many filters begin alike, each topic that begins
so is looked at once for all of them.

Rules: a filter that is asked for again before its messages have come is one filter; a session that
comes back goes on where it was. After a power cut of the gateway it begins again.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from gateway.broker.retained import Retained, RetainedMessages
from gateway.broker.topic import FilterMap
from gateway.mqtt.topics import split_shared

_PAGE_TOPICS = 512
"""Topics looked at in one step."""
_PAGE = 64
"""Messages found in one step, about."""


class Next(NamedTuple):
    source: RetainedMessages
    topic: str
    topic_filter: str

    @property
    def message(self) -> Retained | None:
        return self.source.get(self.topic)


class _Pass:
    """One way through the topics that begin with a prefix, for all filters that begin so."""

    __slots__ = ("filters", "last", "source", "tree")

    def __init__(self, source: RetainedMessages) -> None:
        self.source = source
        self.filters: dict[str, None] = {}
        self.tree: FilterMap[str] | None = None
        """The filters, when they were last looked for."""
        self.last: str | None = None
        """The topic that was looked at last; None before the first one."""

    def matching(self, topic: str) -> list[str]:
        if self.tree is None:
            self.tree = FilterMap()
            for topic_filter in self.filters:
                self.tree[topic_filter] = topic_filter
        return self.tree.matching(topic)


class RetainedFeed:
    def __init__(self) -> None:
        self.filters: set[str] = set()
        """All filters that it was asked for."""
        self.noted: set[str] = set()
        """Those of them that the store knows to be waiting for their messages."""
        self.page: deque[Next] = deque()
        """Messages that are next."""
        self._single: dict[tuple[str, str], RetainedMessages] = {}
        """Topics to look for by name, each with the filter that it is for."""
        self._passes: dict[str, list[_Pass]] = {}
        """By prefix: the one under way, and one that waits for it."""

    def __bool__(self) -> bool:
        return bool(self.page or self._single or self._passes)

    def add(self, topic_filter: str, source: RetainedMessages) -> None:
        """Send what is retained for a filter."""
        self.filters.add(topic_filter)
        levels = split_shared(topic_filter)[1].split("/")
        fixed = next((at for at, level in enumerate(levels) if level in ("+", "#")), None)
        if fixed is None or (fixed and levels[fixed] == "#"):  # `a/#` matches `a`, too
            self._single["/".join(levels[:fixed]), topic_filter] = source
        if fixed is None:
            return
        passes = self._passes.setdefault("/".join([*levels[:fixed], ""]), [])
        if not passes or passes[-1].last is not None:
            passes.append(_Pass(source))
        passes[-1].filters[topic_filter] = None
        passes[-1].tree = None

    def remove(self, topic_filter: str) -> None:
        """The filter is no longer subscribed to."""
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
        """Look at some more topics, and put on the page what is found."""
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
