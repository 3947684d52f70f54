"""Topic Names and Topic Filters (MQTT 5.0 sections 4.7 and 4.8.2): validity, matching, shared
subscriptions.

In and out: str. `*_problem` functions return the fault in words, or None, so that packets, config
files and command lines can each report the fault in their own way. Many filters are matched in a
tree of `Node`s, so filters that do not match a name take no time. Many names are in a `NameIndex`,
so a filter finds the names that it may match without visiting other names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Self, TypeVar

SHARE_PREFIX = "$share/"
SYSTEM_PREFIX = "$SYS"


def topic_name_problem(name: str) -> str | None:
    """Return the reason why `name` is not a Topic Name, or None: [MQTT-4.7.3-1], [MQTT-4.7.3-2],
    [MQTT-4.7.1-1].
    """
    if not name:
        return "is empty"
    if "+" in name or "#" in name:
        return "contains a wildcard"
    return "contains U+0000" if "\0" in name else None


def topic_filter_problem(topic_filter: str) -> str | None:
    """Return the reason why `topic_filter` is not a Topic Filter, or None: [MQTT-4.7.1-1],
    [MQTT-4.7.1-2], [MQTT-4.7.3-1], [MQTT-4.7.3-2].
    """
    if not topic_filter:
        return "is empty"
    if "\0" in topic_filter:
        return "contains U+0000"
    if "+" not in topic_filter and "#" not in topic_filter:
        return None
    # A SUBSCRIBE may have 20,000 filters, so levels are visited one by one only to name the fault.
    if "+" in topic_filter:
        alone = f"/{topic_filter.replace('/', '//')}/".count("/+/")
        if alone < topic_filter.count("+"):
            return "has a + that is not alone in its level"
    above, wildcard, below = topic_filter.partition("#")
    if not wildcard or (not below and (not above or above[-1] == "/")):
        return None
    levels = topic_filter.split("/")
    if levels.count("#") < topic_filter.count("#"):
        return "has a # that is not alone in its level"
    return "has a # that is not its last level"


def shared_filter_problem(topic_filter: str) -> str | None:
    """Return the reason why a filter that starts with `$share/` is not a Shared Subscription, or
    None: [MQTT-4.8.2-1], [MQTT-4.8.2-2].
    """
    share, slash, inner = topic_filter.removeprefix(SHARE_PREFIX).partition("/")
    if not share:
        return "has no share name"
    if "+" in share or "#" in share:
        return "has a wildcard in its share name"
    return topic_filter_problem(inner) if slash else "has no topic filter after its share name"


def split_shared(topic_filter: str) -> tuple[str | None, str]:
    """Return (share name, inner filter) of `$share/name/filter`, or (None, the filter itself) if it
    is not a shared subscription.
    """
    if topic_filter.startswith(SHARE_PREFIX) and shared_filter_problem(topic_filter) is None:
        share, _, inner = topic_filter.removeprefix(SHARE_PREFIX).partition("/")
        return share, inner
    return None, topic_filter


def topic_matches(topic_filter: str, name: str) -> bool:
    """Whether a valid filter matches a valid name. A wildcard at the beginning does not match a
    name that begins with `$` [MQTT-4.7.2-1].
    """
    if topic_filter == name:
        return True
    if name[0] == "$" and topic_filter[0] in "+#":
        return False
    levels = name.split("/")
    wanted = topic_filter.split("/")
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position == len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


def covers(allowed: str, wanted: str) -> bool:
    """Whether the filter `allowed` matches every topic that the filter `wanted` matches."""
    if wanted[0] == "$" and allowed[0] in "+#":
        return False
    outer, inner = allowed.split("/"), wanted.split("/")
    for position, level in enumerate(outer):
        if level == "#":
            return True
        if position == len(inner) or inner[position] == "#" or level not in ("+", inner[position]):
            return False
    return len(outer) == len(inner)


V = TypeVar("V")


class Node:
    """A node of a tree of filters, for one level. Filters with equal first levels share nodes."""

    __slots__ = ("children",)

    def __init__(self) -> None:
        self.children: dict[str, Self] = {}

    def at(self, topic_filter: str) -> Self:
        """Return the node of a filter below this one, created if need be."""
        node = self
        for level in topic_filter.split("/"):
            below = node.children.get(level)
            if below is None:
                below = node.children[level] = type(self)()
            node = below
        return node

    def matching(self, name: str) -> Iterator[Self]:
        """Yield the nodes of all filters that match a topic name. A wildcard in first place never
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
    """A map from filters to values, queried by topic name."""

    def __init__(self) -> None:
        self._root = _Leaf()

    def __setitem__(self, topic_filter: str, value: V) -> None:
        self._root.at(topic_filter).value = value

    def matching(self, name: str) -> list[V]:
        """Return the values of all filters that match."""
        return [
            node.value  # type: ignore[misc]
            for node in self._root.matching(name)
            if node.value is not None
        ]


_MANY = 1024
"""Rough bound of the places that `NameIndex.near` visits. Beyond this, it returns None."""

_DEPTH = 4
"""Number of levels of a name that the index distinguishes. Deeper levels share a place."""


class _Place(Generic[V]):
    __slots__ = ("below", "values")

    def __init__(self) -> None:
        self.below: dict[str, _Place[V]] = {}
        self.values: list[V] = []


class NameIndex(Generic[V]):
    """Values by Topic Name, queried by filter."""

    def __init__(self) -> None:
        self._root: _Place[V] = _Place()
        self._values: list[V] = []

    def __len__(self) -> int:
        return len(self._values)

    def add(self, name: str, value: V) -> None:
        place = self._root
        for level in name.split("/", _DEPTH)[:_DEPTH]:
            below = place.below.get(level)
            if below is None:
                below = place.below[level] = _Place()
            place = below
        place.values.append(value)
        self._values.append(value)

    def clear(self) -> list[V]:
        """Remove and return all values."""
        cleared, self._values = self._values, []
        self._root = _Place()
        return cleared

    def near(self, topic_filter: str) -> list[V] | None:
        """Return the values whose names a filter may match: all that it matches, and perhaps a few
        more. None if there are too many to look at.
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
                return None
        return [value for place in places for value in place.values]

    def _all_below(self, places: list[_Place[V]]) -> list[V] | None:
        found: list[V] = []
        remaining = _MANY
        while places:
            remaining -= 1
            if not remaining:
                return None
            place = places.pop()
            found += place.values
            places += place.below.values()
        return found
