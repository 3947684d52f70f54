"""Checks faults that were planned at a count, such as the Kth publication committed, landed or
sampled, and for which the rig had to watch this count. In: a history: the rows of the system under
test, and the time of each fault. Out: a reason for the verdict *unknown* for each fault that missed
its count. This module counts the rows itself; the injector's own count does not matter.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hil.observe.history import Event, taking

LATE = 20
"""Number of publications by which a fault may be late. After an outage, boards send all that they
have kept: this many may arrive before the rig reads the counter again."""
LATE_SHARE = 10
"""The tolerance is at least 1 / LATE_SHARE of the run's publications."""
LATE_S = 2.0
"""Seconds. A fault may also be late by all publications within this time after the planned count:
clients that had to wait can send hundreds of them between two reads of the rig.
"""
OF_SITE = ("gateway", "landing", "uplink", "ingest")
HANDS = (
    "board swapped",
    "board replugged at another gateway",
    "radio board carried to another gateway",
)
"""Kinds of faults of a board that delay faults of the site, or wait for them."""


@dataclass(frozen=True, slots=True)
class _FaultTime:
    """A fault. since, until: its beginning and its end, in monotonic nanoseconds."""

    since: int
    until: int
    waits_for: str
    """Name that is common to the faults that wait for each other: `site`, or a board's name."""


def misplaced(events: Sequence[Event]) -> list[str]:
    """Return a sentence for each fault that was planned at a count and happened at another one."""
    planned: dict[str, tuple[str, str, int]] = {}
    struck: dict[str, _FaultTime] = {}
    counts = _Counts()
    for event in events:
        with taking(event):
            counts.take(event)
            data = event.data
            if (event.hop, event.event) == ("rig", "planned") and data.get("looked"):
                planned[data["fault"]] = data["kind"], data["counter"], data["at"]
            elif event.event == "happened":
                subject = "site" if event.hop in OF_SITE or data["kind"] in HANDS else event.hop
                struck[data["fault"]] = _FaultTime(data.get("since", event.t), event.t, subject)
    counts.sort()
    missed = []
    for fault, (kind, counter, at) in planned.items():
        if fault not in struck:
            continue
        place = counts.at(counter, struck[fault].since)
        latest = max([at, *_waited(fault, counter, at, struck, counts)]) + counts.late
        if not at <= place <= max(latest, counts.count_soon_after(counter, at)):
            missed.append(
                f"{fault} ({kind}) was aimed at {counter} {at}, but by the counts in the history"
                f" it struck at {place}"
            )
    return missed


def _waited(
    fault: str, counter: str, at: int, struck: dict[str, _FaultTime], counts: "_Counts"
) -> list[int]:
    """Return the count at the end of each fault that delayed this fault beyond its place `at`."""
    mine = struck[fault]
    return [
        counts.at(counter, other.until)
        for name, other in struck.items()
        if name != fault
        and other.waits_for == mine.waits_for
        and other.since <= mine.since
        and other.until <= mine.since
        and counts.at(counter, other.until) >= at
    ]


class _Counts:
    """Counts of publications at the hops. Add all events, sort them, then ask for counts."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._rows: dict[str, list[tuple[int, str, int]]] = defaultdict(list)
        """Rows by hop: time, gateway, position."""
        self._planned = self._before = 0  # before: rows that a used store had at the beginning

    def take(self, event: Event) -> None:
        data: dict[str, Any] = event.data
        match event.hop, event.event:
            case "rig", "run":
                clients = data["bench"].get("client", ())
                messages = sum(one["messages"] * one.get("count", 1) for one in clients)
                self._before = data["bench"].get("first_row", 1) - 1
                self._planned = sum(data["plan"]["readings"].values()) + messages
            case "spool", "publication":
                self._rows["spooled"].append(_row(event))
            case "batch", "publication":
                # the row was in the spool, though perhaps deleted before the rig looked
                self._rows["spooled"].append(_row(event))
                self._rows["landed"].append(_row(event))
            case "board", "publication" if "sampled" in data and data["kind"] == "reading":
                # `sort` numbers them in order of time
                self._seen[f"sampled {data['device']}"].append((data["sampled"], 0))

    def sort(self) -> None:
        for seen in self._seen.values():
            seen.sort()
            seen[:] = [(t, count) for count, (t, _) in enumerate(seen, 1)]
        for name, rows in self._rows.items():
            newest: dict[str, int] = defaultdict(int)
            for t, gateway, position in sorted(rows):
                newest[gateway] = max(newest[gateway], position - self._before)
                self._seen[name].append((t, sum(newest.values())))

    @property
    def late(self) -> int:
        return max(LATE, self._planned // LATE_SHARE)

    def count_soon_after(self, counter: str, at: int) -> int:
        """Return the count of a counter LATE_S seconds after it reached `at`; 0 if it never did."""
        reached = next((t for t, count in self._seen.get(counter, []) if count >= at), None)
        return 0 if reached is None else self.at(counter, reached + int(LATE_S * 1e9))

    def at(self, counter: str, t: int) -> int:
        seen = self._seen.get(counter, [])
        index = bisect_right(seen, (t, 1 << 62))
        return seen[index - 1][1] if index else 0


def _row(event: Event) -> tuple[int, str, int]:
    """Return time, gateway, and position in the gateway's store."""
    gateway = str(event.data["origin"]).partition("/")[0]
    return event.t, gateway, int(event.data["position"])
