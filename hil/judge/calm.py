"""Judges a calm run: one whose bench gives the gateway no cause to refuse, disconnect or be late.
In such a run, each refusal, ended connection, repeated PUBLISH and late row is a mistake. The other
checks would not notice a gateway that makes such mistakes and repairs them.

In: a history. Out: a sentence for each mistake.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from hil.observe.history import Event, taking

CONNECTIONS = 2
"""Number of connections that a board may make per start in a run without faults. On a busy machine,
HELLO may be sent again before its answer arrives."""
OUTAGES = ("landing place refuses", "upload cut half-way")
"""Kinds of faults, by their names in a history, in which the landing place takes nothing."""
NEXT_TRY, GOES_ON_S = 2.5, 6.0
"""After an outage, a row must land within NEXT_TRY times its length, plus the time until a batch is
cut, plus GOES_ON_S: the uplink waits twice as long after each try, ± 25 %, from 1 s on.
"""
LANDS_WITHIN = 20.0
"""Tolerance in seconds for a busy machine: a row must land within `batch_age_s` plus this time."""


def is_calm(run: dict[str, Any]) -> bool:
    """Return whether the bench of a run gives the gateway no cause to refuse, disconnect or be
    late. run: data of the event `run`.
    """
    bench, faults = run["bench"], run["plan"].get("faults", ())
    air = bench.get("air") or {}
    busy = bench.get("gateway") or bench.get("bridge") or bench.get("commands") or "hops" in run
    narrow = bench.get("config", {}).keys() & {"spool", "limits", "quota"}
    by_air = air.get("trace") or air.get("foreign") or air.get("sent_before")
    broken = bench.get("board") or faults or bench.get("fault")
    return "batch_age_s" in run and not (busy or narrow or by_air or broken)


def wrong(events: Sequence[Event]) -> list[str]:
    """Return a sentence for each mistake; none if the run was interrupted or is not calm."""
    run = next((one.data for one in events if (one.hop, one.event) == ("rig", "run")), None)
    over = any((one.hop, one.event) == ("rig", "end") for one in events)
    planned = any(one.event == "planned" for one in events)
    if run is None or not over or planned or not is_calm(run):
        return []
    return [*_repeated(events), *_late(events, run)]


def _repeated(events: Sequence[Event]) -> Iterable[str]:
    """Yield a sentence for each board and kind of mistake. A board that starts again does not know
    which of its readings were in flight, and sends all of them again. Repeated PUBLISH packets
    therefore count only before the board's second start.
    """
    found: Counter[str] = Counter()
    connections: Counter[str] = Counter()
    starts = _starts(events)
    for event in events:
        with taking(event):
            data = event.data
            match event.hop, event.event:
                case "wire" | "air", "refused" if data["direction"] == "down":
                    found[f"refused {data['line']} a publication or its release"] += 1
                case "wire" | "air", "connack":
                    connections[data["line"]] += 1
                case "wire", "count" if "link" in data and event.t < _second(starts[data["line"]]):
                    again = sum(way["publishes_again"] for way in data["link"].values())
                    found[f"let {data['line']} send a PUBLISH again"] = again
                case "board", "again" | "forgotten" | "resent" if event.t < _second(
                    starts[data["device"]]
                ):
                    found[f"let {data['device']} send a PUBLISH again"] += 1
    for line, count in connections.items():
        if count > CONNECTIONS * max(1, len(starts[line])):
            found[f"ended a connection of {line}"] = count - 1
    for trouble, count in sorted(found.items()):
        if count:
            yield f"the gateway {trouble}, {count} time(s), although no fault was planned"


def _starts(events: Iterable[Event]) -> dict[str, list[int]]:
    starts: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if (event.hop, event.event) == ("board", "start"):
            with taking(event):
                starts[event.data["device"]].append(event.t)
    return starts


def _second(starts: list[int]) -> float:
    return sorted(starts)[1] if len(starts) > 1 else float("inf")


def _late(events: Iterable[Event], run: dict[str, Any]) -> Iterable[str]:
    """Yield a sentence for each device with a row that was in the store longer than allowed."""
    stored: dict[tuple[str, int], int] = {}
    landed: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event.event == "publication" and event.hop in ("spool", "batch"):
            with taking(event):
                place = event.data["origin"], event.data["position"]
                if event.hop == "spool":
                    stored.setdefault(place, event.t)
                elif place in stored:
                    waited = event.t - stored[place]
                    landed[str(event.data["device"])].append((waited, event.data["position"]))
    most = float(run["batch_age_s"])
    for device, waits in sorted(landed.items()):
        longest, position = max(waits)
        if longest / 1e9 > most + LANDS_WITHIN:
            yield (
                f"row {position} of {device} was in the store for {longest / 1e9:.1f} s before it"
                f" landed, but may wait only {most:g} s"
            )


def slow_to_go_on(events: Sequence[Event]) -> Iterable[str]:
    """Yield a sentence for each outage of the landing place after which rows waited too long. An
    outage is not judged if another fault began before the rows had to land.
    """
    age = next((e.data.get("batch_age_s", 0.0) for e in events if e.event == "run"), 0.0)
    faults = [e for e in events if e.event == "happened"]
    stored: dict[tuple[str, int], int] = {}
    landed: dict[tuple[str, int], int] = {}
    for event in events:
        if event.event == "publication" and event.hop in ("spool", "batch"):
            place = event.data["origin"], event.data["position"]
            (stored if event.hop == "spool" else landed).setdefault(place, event.t)
    for outage in faults:
        if outage.data["kind"] in OUTAGES and "until" in outage.data:
            since, until = outage.data["since"], outage.data["until"]
            most = NEXT_TRY * (until - since) / 1e9 + age + GOES_ON_S
            others = [e for e in faults if e is not outage and e.t > since]
            first = min((e.data.get("since", e.t) for e in others), default=float("inf"))
            waiting = [p for p, t in stored.items() if t < until < landed.get(p, until)]
            waited = min((landed[p] - until for p in waiting), default=0) / 1e9
            if most < waited and until + most * 1e9 < first:
                yield (
                    f"after an outage of {(until - since) / 1e9:.1f} s, nothing landed for"
                    f" {waited:.0f} s, but rows may wait only {most:.0f} s"
                )
