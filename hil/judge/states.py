"""Checks that both ends of a bridge hold the same retained messages at the end of a run: the newest
one of each topic. In: a history. Out: a sentence for each end that holds other messages, and for
each reason why a run cannot show what an end holds.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from hil.formats.topics import HERE, THERE
from hil.observe.history import Event, taking

HOP = "states"
NAMES = {HERE: "the gateway", THERE: "the other broker"}


def wrong(events: Sequence[Event]) -> list[str]:
    """Return a sentence for each end with wrong retained messages; none for an interrupted run."""
    if not any((event.hop, event.event) == ("rig", "end") for event in events):
        return []
    newest, retained, _ = _newest(events)
    return [
        f"{NAMES[end]} has {len(differ)} retained message(s) that are not the newest: {differ[0]}"
        f" is {_shown(messages.get(differ[0]))}, but must be {_shown(newest.get(differ[0]))}"
        for end, messages in retained.items()
        if (differ := sorted({topic for topic, _ in messages.items() ^ newest.items()}))
    ]


def doubts(events: Sequence[Event]) -> Iterator[str]:
    """Yield a sentence for each end of the bridge that got fewer changes than planned, or whose
    retained messages were not read.
    """
    run = next((one.data for one in events if (one.hop, one.event) == ("rig", "run")), None)
    table = run["bench"].get("bridge") if run else None
    if table is None:
        return
    _, retained, made = _newest(events)
    for end, name in NAMES.items():
        if made[end] < (planned := table["states"] + table["changes"]):
            yield f"{name} has got {made[end]} of {planned} planned changes of retained messages"
        elif end not in retained:
            yield f"the retained messages of {name} were not read"


def _newest(
    events: Sequence[Event],
) -> tuple[dict[str, str], dict[str, dict[str, str]], Counter[str]]:
    """Return newest payloads by topic; by end, its retained messages and number of changes."""
    newest: dict[str, str] = {}
    retained: dict[str, dict[str, str]] = {}
    made: Counter[str] = Counter()
    for event in sorted((one for one in events if one.hop == HOP), key=lambda one: one.t):
        with taking(event):
            data: dict[str, Any] = event.data
            if event.event == "held":
                retained[data["end"]] = data["messages"]
                continue
            made[data["end"]] += 1
            newest.pop(data["topic"], None)
            if data["payload"]:
                newest[data["topic"]] = data["payload"]
    return newest, retained, made


def _shown(payload: str | None) -> str:
    return "none" if payload is None else bytes.fromhex(payload).decode(errors="replace")
