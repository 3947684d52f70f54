"""Checks that faults happened at their planned places, and counts the hits of each window. In: a
history. Out: reasons for which the verdict is *unknown*, and counts for the report. A window is the
time between two steps of the program or board that the fault breaks. Only a fault in this window
can break the claim of the window, so a run without such a fault has not tested the claim.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hil.judge.clocks import unseen_jumps
from hil.judge.places import misplaced
from hil.observe.history import Event, taking

IN_WRITE = "in the middle of an EEPROM write"
AFTER_WRITE = "after an EEPROM write"

RECEIVED = "received, not committed"
COMMITTED = "committed, not acknowledged"
ACKNOWLEDGED = "acknowledged, before the next commit"
RECORDED = "recorded by a subscriber, not released"
RELEASED = "released to a subscriber, before the next commit"
DATA = "data landed, before the manifest"
LANDED = "manifest landed, before the rows are deleted"
DELETED = "rows deleted, before the next batch"
AT_WRITE, AT_SYNC, AT_LINE = "before a write to disk", "after a sync", "before a write to a line"
AT_SENDING, AT_SENT = "when it begins to send its turn", "when it has sent its turn"
AT_LISTENING, AT_HEARD = "when it begins to listen", "when it has heard the answer"
IN_PUBLISH, IN_PUBREL = "within a PUBLISH", "within a PUBREL"
IN_OTHER, BETWEEN = "within another frame", "between two frames"
IN_MICRO_BATCH = (
    "before its offset is noted",
    "before its rows are written",
    "before its readings are written",
    "before its rows are appended",
    "before its readings are appended",
    "before its counts are saved",
    "before its end is noted",
)

NO_ACK_BEFORE_COMMIT = "a message is acknowledged only after it is on disk"
ONCE = "a message that is sent again is accepted once"
NO_FORGERY = "an answer sent too early, before its commit, is noticed"
WHOLE = "a commit is stored as a whole, or not at all"
OF_COMMIT = {RECEIVED: NO_ACK_BEFORE_COMMIT, COMMITTED: ONCE, ACKNOWLEDGED: NO_FORGERY}
OF_WRITE = {
    IN_WRITE: "a torn slot is not a publication",
    AFTER_WRITE: "a publication is complete once its last byte is written",
}
OF_EXCHANGE = {
    IN_PUBLISH: "a journalled publication is sent again under the same identity",
    IN_PUBREL: "a released publication is not published again",
}
GUARDS: dict[str, dict[str, str]] = {
    "kill -9 of the gateway": OF_COMMIT,
    "power cut of the gateway": OF_COMMIT,
    "kill -9 of the gateway at a release": {
        RECORDED: "messages that a subscriber holds are released after a start",
        RELEASED: "a released message is not sent again",
    },
    "kill -9 of the gateway at a step of the exchange": {
        AT_WRITE: NO_ACK_BEFORE_COMMIT,
        AT_SYNC: WHOLE,
        AT_LINE: ONCE,
    },
    "kill -9 of the ingest in a micro-batch": dict.fromkeys(
        IN_MICRO_BATCH, "a repeated micro-batch adds nothing, and leaves nothing out"
    ),
    "power cut of the centre": dict.fromkeys(
        IN_MICRO_BATCH, "rows lost in a power cut, and no others, are ingested again"
    ),
    "kill -9 of the uplink": {
        DATA: "rows stay until their batch is published",
        LANDED: "a batch that lands again is the same file",
        DELETED: "rows deleted from the spool have landed",
    },
    "power cut": OF_WRITE,
    "power cut at an EEPROM write of the exchange": OF_WRITE,
    "power cut in an exchange": OF_EXCHANGE,
    "power cut at a byte of the exchange": OF_EXCHANGE,
    "power cut in a turn of a radio board": {
        AT_SENDING: "a journalled publication is sent in a new session",
        AT_SENT: "a publication whose answer the board did not hear is delivered only once",
        AT_LISTENING: "no nonce is used twice",
        AT_HEARD: "the gateway repeats an answer that the board lost before recording it",
    },
}
"""Windows of each kind of fault, each with the claim that only a fault in this window can break."""
SWEEPS = (
    "kill -9 of the gateway at a step of the exchange",
    "power cut at an EEPROM write of the exchange",
    "power cut at a byte of the exchange",
)
"""Kinds of faults that a bench repeats in all of their windows. Each window must have been hit."""

COUNTED_FROM = ("sample", "publication")
"""Last words of the names of some counts. At such a count, a fault may happen later than planned,
if it had to wait for the end of another fault."""


def doubts(events: Sequence[Event]) -> list[str]:
    """Return the reasons why a history does not show all that was planned."""
    aims: dict[str, tuple[str, Mapping[str, Any]]] = {}
    hits: dict[str, Mapping[str, Any]] = {}
    held_names: list[str] = []
    armed: int | None = None
    published: dict[str, int] = {}
    for event in events:
        data = event.data
        with taking(event):
            match event.hop, event.event:
                case "rig", "planned" if data.get("aim"):
                    aims[data["fault"]] = data["kind"], dict(data["aim"])
                case "rig", "armed":
                    armed, held_names = event.t, list(data["held"])
                case "board", "publication":
                    name = str(data["device"])
                    published[name] = min(event.t, published.get(name, event.t))
                case _, "happened":
                    hits[data["fault"]] = data
    reasons = [
        f"{fault} ({kind}) was aimed at {_words(aim)}, but struck {_words(hits[fault].get('hit'))}"
        for fault, (kind, aim) in aims.items()
        if fault in hits and not _struck_there(fault, aim, hits)
    ]
    reasons += _never_hit(aims, coverage(events))
    reasons += misplaced(events)
    reasons += unseen_jumps(events)
    return reasons + [
        f"{name} published before all faults and observers were armed"
        for name in held_names
        if armed is not None and published.get(name, armed) < armed
    ]


def coverage(events: Iterable[Event]) -> dict[str, dict[str, int]]:
    """Return how many faults struck in each window, by kind of fault."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for event in events:
        if event.event == "happened" and (window := event.data.get("window")):
            counts[event.data["kind"]][window] += 1
    return {kind: dict(windows) for kind, windows in counts.items()}


def guarded(
    hit: Mapping[str, Mapping[str, int]], asked: Mapping[str, Collection[str]] | None = None
) -> list[tuple[str, str, int, str]]:
    """Return rows for a table: kind, window, number of hits, and the claim that the window guards.
    asked: the windows that the plan names, by kind. A window without a hit has a row if the plan
    names it. It also has one if another window of its kind was hit, and the plan names no window of
    this kind."""
    asked = asked or {}
    return [
        (kind, window, hit.get(kind, {}).get(window, 0), GUARDS.get(kind, {}).get(window, ""))
        for kind in sorted({*hit, *asked})
        for window in dict.fromkeys(
            [*GUARDS.get(kind, {}), *hit.get(kind, {}), *sorted(asked.get(kind, ()))]
        )
        if window in hit.get(kind, {}) or window in asked.get(kind, (window,))
    ]


def asked(events: Iterable[Event]) -> dict[str, set[str]]:
    """Return the windows of the plan, by kind of fault: the named ones, and all of a sweep."""
    found: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.event == "planned" and (aim := event.data.get("aim") or {}):
            kind = event.data["kind"]
            if kind in SWEEPS:
                found[kind] |= GUARDS[kind].keys()
            elif "window" in aim:
                found[kind].add(aim["window"])
    return dict(found)


def _never_hit(
    aims: Mapping[str, tuple[str, Mapping[str, Any]]], hit: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """Return a sentence for each window of the plan that no fault has hit."""
    needed: dict[str, set[str]] = defaultdict(set)
    for kind, aim in aims.values():
        if kind in SWEEPS:
            needed[kind] |= GUARDS[kind].keys()
        elif "window" in aim:
            needed[kind].add(str(aim["window"]))
    return [
        f"no {kind} fell into the window `{window}`, which guards: {GUARDS[kind][window]}"
        for kind in sorted(needed)
        for window in GUARDS.get(kind, {})
        if window in needed[kind] and not hit.get(kind, {}).get(window)
    ]


def _struck_there(
    fault: str, aim: Mapping[str, Any], hits: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Whether a fault happened at its planned place. If earlier faults of the same board or line
    were in progress there, it must have happened as soon as they had ended.
    """
    hit = hits[fault].get("hit") or {}
    waited = hits[fault].get("behind") in hits
    return all(
        name in hit
        and (hit[name] == value or (waited and _waited(fault, name, value, hit[name], hits)))
        for name, value in aim.items()
    )


def _waited(
    fault: str, name: str, aim: Any, hit: Any, hits: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Return whether other faults were in progress at every count from `aim` on, before `hit`."""
    if name.rpartition(" ")[2] not in COUNTED_FROM or hit < aim:
        return False
    free = aim
    for begin, end in sorted(_others(fault, name, hits)):
        if begin <= free:
            free = max(free, end + 1)
    return bool(hit <= free)


def _others(
    fault: str, name: str, hits: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[int, int]]:
    """Yield start and end, on the count `name`, of each other fault of the same board or part."""
    for other, happened in hits.items():
        if other != fault and other.partition("/")[0] == fault.partition("/")[0]:
            begin = (happened.get("hit") or {}).get(name)
            if begin is not None:
                yield begin, (happened.get("over") or {}).get(name, begin)


def _words(place: Mapping[str, Any] | None) -> str:
    text = ", ".join(f"{name} {value}" for name, value in (place or {}).items())
    return text or "at an unknown place"
