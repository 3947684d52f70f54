"""Histories of runs in which nothing went wrong. The tests of the judge change them."""

from typing import Any

import cbor2

from hil.judge.checker import Result
from hil.judge.publication import Outcome
from hil.observe.history import HOPS, READINGS, Event

DEVICES = ("uno-1", "uno-2")
INCARNATION = 0xC0FFEE
S = 1_000_000_000
UTC = 1_700_000_000
"""Unix time at moment 0 of the history's clock, in seconds."""
HZ = 16_000_000
FITTING = {"fitting": 9, "strange": 0}
UNSURE = 4
"""Possible error, in seconds, that a board states for the time of a reading soon after it got the
time.
"""
MET = S // 2
"""Time at which the boards received WELCOME, in nanoseconds. They had started at 0."""


def payload(device: str, raw: int, sequence: int) -> str:
    """Return the payload of a reading that was taken at `sequence` seconds of the history. raw:
    result of the ADC conversion.
    """
    volts = raw * 5 / 1024
    record = {-2: f"{device}:", -3: UTC + sequence, 0: "adc0", 1: "V", 2: volts, "tu": UNSURE}
    return cbor2.dumps([record]).hex()


def at_board(device: str, sequence: int, raw: int) -> Event:
    data = {"device": device, "incarnation": INCARNATION, "sequence": sequence}
    data |= {"kind": "reading", "topic": f"sensors/{device}/adc0"}
    records = [[f"{device}:adc0", raw * 5 / 1024, None, "V"]]
    t = sequence * S
    return Event(
        t,
        "board",
        "publication",
        {**data, "records": records, "sampled": t, "cycle": sequence * HZ},
    )


def at(hop: str, device: str, sequence: int, raw: int, position: int) -> Event:
    """Return the event of a publication at a hop. The publication takes 0.1 s from one hop to the
    next.
    """
    row: dict[str, Any] = {"device": device, "incarnation": INCARNATION, "sequence": sequence}
    row |= {"topic": f"sensors/{device}/adc0", "client": device if hop == "spool" else None}
    row |= {"received": (UTC + sequence) * 1_000_000 + 50_000, "boot": 1}
    row |= {"monotonic": sequence * 1_000_000, "origin": "site/e", "position": position}
    row |= {} if hop == "spool" else {"batch": sequence}
    if hop == "table":
        landed = (UTC + sequence) * 1_000_000 + 200_000
        row |= {"undecodable": None, "landed": landed, "ingested": landed + 50_000}
    t = sequence * S + HOPS.index(hop) * S // 10
    return Event(t, hop, "publication", {**row, "payload": payload(device, raw, sequence)})


def reading(device: str, sequence: int, raw: int) -> Event:
    """Return the row of a reading in the table of readings."""
    row: dict[str, Any] = {"device": device, "incarnation": INCARNATION, "sequence": sequence}
    row |= {"index": 0, "name": "adc0", "unit": "V", "value": raw * 5 / 1024}
    row |= {"time": (UTC + sequence) * 1_000_000, "text": None, "flag": None, "data": None}
    row |= {
        "time_certainty": "synchronised",
        "time_stated": None,
        "gateway": "site",
        "topic": f"sensors/{device}/adc0",
    }
    row |= {"received": (UTC + sequence) * 1_000_000 + 50_000}
    return Event(
        sequence * S + S // 2, READINGS, "reading", {**row, "sum": None, "quality": "good"}
    )


def begin(until: str = "table", readings: int = 0, messages: int = 0) -> Event:
    """Return the event with which a run begins. readings: planned number for each board. messages:
    planned number for the client; 0: the bench has no client.
    """
    bench = {"title": "t", "until": until, "client": [{"messages": messages}] * bool(messages)}
    plan = {"seed": 1, "readings": dict.fromkeys(DEVICES, readings) if readings else {}}
    run = {"version": "1", "bench": bench, "plan": plan, "gateway": "site"}
    return Event(0, "rig", "run", run)


def seed(device: str) -> dict[str, int]:
    """Return the values of a device's WELCOME that identify the session of its link."""
    return {"boot": 1, "attempt": 0, "board": 0, "gateway": DEVICES.index(device)}


def run_of(count: int, fault: bool = True) -> list[Event]:
    """Return a run in which nothing went wrong: `count` readings of each device, one a second, and
    one planned fault that happened.
    """
    events = [begin("table", count), Event(0, "rig", "clock", {"utc": UTC * S})]
    events.append(Event(0, "rig", "armed", {"held": DEVICES}))
    events.append(Event(0, "rig", "planned", {"fault": "gateway/kill-1", "kind": "kill"}))
    if fault:
        events.append(Event(1, "gateway", "happened", {"fault": "gateway/kill-1", "kind": "kill"}))
    for device in DEVICES:
        said = {"device": device, "cause": "power-on", "cycle": 0}
        events.append(Event(0, "board", "start", said))
        events.append(Event(MET, "wire", "welcome", {"line": device, **seed(device)}))
        events.append(Event(MET, "wire", "publish", {"line": device, "direction": "up"}))
        session = {"line": device, **seed(device), "up": FITTING, "down": FITTING}
        events.append(Event((count + 1) * S, "wire", "session", session))
        events.append(Event((count + 1) * S, "wire", "count", {"line": device, "final": True}))
    position = 0
    for sequence in range(1, count + 1):
        for device in DEVICES:
            position += 1
            raw = sequence * 7 % 1024
            events.append(at_board(device, sequence, raw))
            events += [at(hop, device, sequence, raw, position) for hop in HOPS[1:]]
            events.append(reading(device, sequence, raw))
    last = (count + 1) * S
    return [
        *events,
        *(Event(last, hop, "complete") for hop in (*HOPS, READINGS)),
        Event(last, "rig", "end"),
    ]


def until_batch(count: int) -> list[Event]:
    """Return a run like that of `run_of`, but of a bench that ends at the landing place."""
    events = [event for event in run_of(count)[1:] if event.hop not in ("table", READINGS)]
    return [begin("batch", count), *events]


def without(
    events: list[Event], hops: tuple[str, ...], sequence: int, device: str = "uno-1"
) -> list[Event]:
    return [event for event in events if not (event.hop in hops and is_of(event, sequence, device))]


def is_of(event: Event, sequence: int, device: str = "uno-1") -> bool:
    return (
        event.event in ("publication", "reading")
        and event.data["sequence"] == sequence
        and event.data["device"] == device
    )


def wrong(result: Result) -> list[tuple[str, int, Outcome, str | None]]:
    return [
        (p.key.device, p.key.sequence, p.outcome, p.hop)
        for p in result.publications
        if p.outcome is not Outcome.OK
    ]


def message(
    hop: str, sequence: int, qos: int, text: str = "x", position: int | None = None
) -> Event:
    """Return the event of a client's publication at a hop. Its payload is not SenML."""
    data = {
        "device": "client-1",
        "incarnation": 1,
        "sequence": sequence,
        "payload": f"{text}{sequence}".encode().hex(),
    }
    if hop == "board":
        return Event(sequence, hop, "publication", {**data, "kind": "message", "qos": qos})
    return Event(
        sequence,
        hop,
        "publication",
        {**data, "origin": "site/e", "position": 100 + (position or sequence)},
    )


def of_client(qos: int, until: str = "batch", count: int = 3) -> list[Event]:
    start = begin(until, messages=count)
    hops = HOPS[: HOPS.index(until) + 1]
    sent = [message(hop, sequence, qos) for sequence in range(1, count + 1) for hop in hops]
    return [
        start,
        Event(0, "rig", "armed", {"held": []}),
        *sent,
        *(Event(9, hop, "complete") for hop in (*hops, READINGS)),
        Event(10, "rig", "end"),
    ]
