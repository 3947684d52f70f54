"""Topic filters (MQTT 5.0, 4.7). In: a filter and a topic. Out: whether it matches."""


def matches(pattern: str, topic: str) -> bool:
    """pattern: a topic filter that is none of a shared subscription."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("#", "+"):
        return False  # [MQTT-4.7.2-1]
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(levels) or level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)
