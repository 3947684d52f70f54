"""Where faults struck: whether it was where they were aimed, and how often each window of each kind
was hit.

In: a history. Out: reasons for which the verdict is *unknown*, and counts for the report. A window
is a stretch between two steps of what is broken, at which one promise hangs by one line of code: a
run that never broke there has not shown it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from hil.observe.history import Event, taking

IN_WRITE = "in the middle of an EEPROM write"
AFTER_WRITE = "after an EEPROM write"

COUNTED_FROM = ("sample", "publication")
"""What a place is counted from. A fault that had to wait for another one struck at a later one."""


def doubts(events: Iterable[Event]) -> list[str]:
    """Why a history cannot show what its plan promised: a fault struck elsewhere, or something was
    published before all was armed.
    """
    aims: dict[str, tuple[str, Mapping[str, Any]]] = {}
    hits: dict[str, Mapping[str, Any]] = {}
    held: list[str] = []
    armed: int | None = None
    published: dict[str, int] = {}
    for event in events:
        data = event.data
        with taking(event):
            match event.hop, event.event:
                case "rig", "planned" if data.get("aim"):
                    aims[data["fault"]] = data["kind"], dict(data["aim"])
                case "rig", "armed":
                    armed, held = event.t, list(data["held"])
                case "board", "publication":
                    name = str(data["device"])
                    published[name] = min(event.t, published.get(name, event.t))
                case _, "happened":
                    hits[data["fault"]] = data
    told = [
        f"{fault} ({kind}) was aimed at {_told(aim)} and struck {_told(hits[fault].get('hit'))}"
        for fault, (kind, aim) in aims.items()
        if fault in hits and not _struck_there(aim, hits[fault], hits)
    ]
    return told + [
        f"{name} published before all that was to break it and to look at it was armed"
        for name in held
        if armed is not None and published.get(name, armed) < armed
    ]


def coverage(events: Iterable[Event]) -> dict[str, dict[str, int]]:
    """How often each window was hit, by kind of fault."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for event in events:
        if event.event == "happened" and (window := event.data.get("window")):
            counts[event.data["kind"]][window] += 1
    return {kind: dict(windows) for kind, windows in counts.items()}


def _struck_there(
    aim: Mapping[str, Any], happened: Mapping[str, Any], hits: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Whether it struck where it was aimed, or as soon as the fault before it was over."""
    hit = happened.get("hit") or {}
    late = COUNTED_FROM if happened.get("behind") in hits else ()
    return all(
        name in hit and (hit[name] == value or (name in late and hit[name] > value))
        for name, value in aim.items()
    )


def _told(place: Mapping[str, Any] | None) -> str:
    """E.g. `sample 17, writes 3, torn True`."""
    told = ", ".join(f"{name} {value}" for name, value in (place or {}).items())
    return told or "nobody knows where"
