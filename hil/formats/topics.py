"""Topic Filters (MQTT 5.0, 4.7). In: a filter and a topic. Out: whether the filter matches."""

from functools import cache

SHARE = "$share/"
STATES = "states"
"""First level of the topics whose retained messages both ends of a bridge hold. The second level is
the end that changes them."""
HERE, THERE = "here", "there"
"""Names of the ends of a bridge: the gateway, and the other broker."""


def shared(pattern: str) -> tuple[str | None, str]:
    """Return the Share Name, None for an ordinary subscription, and the Topic Filter without
    `$share/NAME/` [MQTT-4.8.2-1]. pattern: the filter as the subscriber sends it."""
    if not pattern.startswith(SHARE):
        return None, pattern
    name, _, filter = pattern.removeprefix(SHARE).partition("/")
    return name, filter


@cache
def matches(pattern: str, topic: str) -> bool:
    """Return whether a filter matches a topic. pattern: filter without `$share/NAME/`."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("#", "+"):
        return False  # [MQTT-4.7.2-1]
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(levels) or level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)
