"""Compares what the clients of `hil/clients/walk.toml` saw with what its records demand. In: a
history. Out: a sentence for each client that saw something else, and for each record that was to be
tried and has no result. The retained messages of the gateway's mirror, and its announcements for
Home Assistant, are compared with the boards' publications (`mirrored`).
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import Any

from hil.clients import records
from hil.judge.publication import Key, Sighting
from hil.observe.history import Event, taking

HOP = "walk"
MIRROR = "mirror"
"""Record that shows the mirror of readings, and the announcements of boards (`mirror`)."""


def wrong(events: Sequence[Event]) -> list[str]:
    """Return a sentence for each client that saw something else than its record demands."""
    known = records()
    found = []
    for event in events:
        if (event.hop, event.event) == (HOP, "tried"):
            with taking(event):
                record, saw = known[event.data["record"]], event.data["saw"]
                if event.data["after"]:
                    record = {**record, "sees": record["after_sees"]}
                if record["name"] != MIRROR:
                    found += _differences(record, saw)
    return found


def doubts(events: Sequence[Event]) -> Iterator[str]:
    """Yield a sentence if records were to be tried, and have no result."""
    runs = (event.data["bench"] for event in events if (event.hop, event.event) == ("rig", "run"))
    bench: dict[str, Any] = next(runs, {})
    due = records(bench.get("config", {})) if bench.get("walk") else {}
    scripts = {(name, False) for name in due}
    scripts |= {(name, True) for name, record in due.items() if "after" in record}
    for event in events:
        if (event.hop, event.event) == (HOP, "tried"):
            scripts.discard((event.data["record"], event.data["after"]))
    if missing := sorted(name for name, _ in scripts):
        yield f"{len(missing)} record(s) of hil/clients/walk.toml were not tried: {missing[0]}"


def _differences(record: dict[str, Any], saw: dict[str, list[str]]) -> list[str]:
    allowed = [record["sees"], *([record["or_sees"]] if "or_sees" in record else [])]
    if any(_fits(one, saw) for one in allowed):
        return []
    return [
        f"option {record['name']} ({record['statement']}): client {name} saw"
        f" {'; '.join(lines) or 'nothing'}, not {'; '.join(_of(name, record['sees'])) or 'nothing'}"
        for name, lines in saw.items()
        if not _same(_of(name, record["sees"]), lines)
    ]


def _of(name: str, lines: Sequence[str]) -> list[str]:
    return [line.partition(": ")[2] for line in lines if line.partition(": ")[0] == name]


def _fits(wanted: Sequence[str], saw: dict[str, list[str]]) -> bool:
    return all(_same(_of(name, wanted), lines) for name, lines in saw.items())


def _same(wanted: Sequence[str], saw: Sequence[str]) -> bool:
    return len(wanted) == len(saw) and all(
        len(ours.split()) == len(theirs.split())
        and all(map(_matches, ours.split(), theirs.split()))
        for ours, theirs in zip(wanted, saw, strict=True)
    )


def _matches(wanted: str, word: str) -> bool:
    """Return whether a word is the wanted one: `NAME=LOW..HIGH` and `NAME=*` stand for many."""
    name, is_pair, value = wanted.partition("=")
    key, _, found = word.partition("=")
    low, is_range, high = value.partition("..")
    if is_pair and name == key and value == "*":
        return bool(found)
    if is_pair and name == key and is_range:
        return found.isdecimal() and int(low) <= int(found) <= int(high)
    return wanted == word


Value = tuple[object, str | None, str | None]
"""Value, unit and time of a mirrored reading. The time is None if the reading has none."""
FRESH_NS = 2_000_000_000
"""Time from a fault of the gateway. The mirror of its next start has what boards make later."""


def mirrored(
    events: Sequence[Event],
    ways: Mapping[Key, Mapping[str, list[Sighting]]],
    boards: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[str]:
    """Return a sentence for each message of the mirror that is not its board's last reading, and
    for each announcement that does not fit its board. boards: registry entries of each board.
    """
    lines = [
        line.removesuffix(" retain").split(" ", 1)
        for event in events
        if (event.hop, event.event) == (HOP, "tried")
        if event.data["record"] == MIRROR and event.data["after"]
        for line in event.data["saw"]["a"]
    ]
    if not lines:
        return []
    values, fresh = _readings(events, ways)
    shown = {topic.partition("/")[2]: text for topic, text in lines if topic[:4] != "home"}
    found = [f"the mirror lacks {topic}" for topic in sorted(fresh - shown.keys())]
    for topic, text in shown.items():
        board, _, name = topic.partition("/")
        shows = _fields(text)
        if name == "$firmware" and shows.get("installed_version") not in _versions(
            boards.get(board, ())
        ):
            found.append(f"the mirror has {topic} {text}, which was not written to the board")
        if name and name[0] != "$":
            value = shows.get("value"), shows.get("unit"), shows.get("time")
            allowed = values[topic][-1:] if topic in fresh else values[topic]
            if not any(value[:2] == one[:2] and one[2] in (None, value[2]) for one in allowed):
                found.append(f"the mirror has {topic} {text}, which its board has not published")
    announced = [_fields(text) for topic, text in lines if topic.startswith("homeassistant/")]
    due = {topic.partition("/")[0] for topic in fresh}
    return found + list(_misannounced(announced, boards, due))


def _versions(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the versions of firmware that a board has had: the first digits of its SHA-256."""
    return [entry["firmware"][:12] for entry in entries]


def _fields(text: str) -> dict[str, Any]:
    """Return the fields of a JSON object; none if the text is something else."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _readings(
    events: Sequence[Event], ways: Mapping[Key, Mapping[str, list[Sighting]]]
) -> tuple[dict[str, list[Value]], set[str]]:
    """Return all values that have landed, by BOARD/NAME and in the order of arrival. Return also
    each BOARD/NAME with a value that its board made FRESH_NS after the last fault of the gateway.
    """
    struck = [one.t for one in events if (one.hop, one.event) == ("gateway", "happened")]
    rows = [(key, row) for key, way in ways.items() if way["board"] for row in way["batch"]]
    values: dict[str, list[Value]] = defaultdict(list)
    fresh = set()
    for key, row in sorted(rows, key=lambda one: one[1].position):
        for record in row.records or ():
            topic = f"{key.device}/{record.name.removeprefix(f'{key.device}:')}"
            time = None
            if record.time is not None and not record.relative:
                time = f"{datetime.fromtimestamp(record.time, UTC):%Y-%m-%dT%H:%M:%SZ}"
            values[topic].append((record.value, record.unit, time))
            if ways[key]["board"][0].t > max(struck, default=0) + FRESH_NS:
                fresh.add(topic)
    return values, fresh


def _misannounced(
    announced: Sequence[dict[str, Any]],
    boards: Mapping[str, Sequence[Mapping[str, Any]]],
    due: Set[str],
) -> Iterator[str]:
    """Yield a sentence for each wrong announcement. due: boards with a reading since the gateway's
    last start; the gateway keeps the announcements of others only if it ended in order.
    """
    devices = [one.get("device", {}) for one in announced]
    of_boards = {
        device.get("name", "nothing"): one
        for device, one in zip(devices, announced, strict=True)
        if "via_device" in device or not device
    }
    if len({tuple(device.get("identifiers", ())) for device in devices}) < len(announced):
        yield "two announcements are for one device"
    if strange := (of_boards.keys() - boards.keys()) | (due - of_boards.keys()):
        yield f"announced is {', '.join(of_boards)}, which differs by {', '.join(sorted(strange))}"
    for name, entries in boards.items():
        if name not in of_boards:
            continue
        version = of_boards[name]["device"].get("sw_version")
        if version not in _versions(entries):
            yield f"{name} is announced with firmware {version}"
        for key, component in of_boards[name].get("components", {}).items():
            topics = [component[at].split("/") for at in component if at.endswith("_topic")]
            if any(name not in topic[1:2] for topic in topics):
                yield f"{name} is announced with topics of another board at {key}"
