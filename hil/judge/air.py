"""Judges the simulated radio channel of a run, and the sessions of boards with a radio.

In: a history. Out: a sentence for each transmission that broke the radio law, for each board that
began a new session because of a foreign radio, and for each mistake in a session. A bench may plan
lost frames, foreign frames, a long session and used-up airtime: `doubts` returns a reason for
*unknown* for each that the run lacks. The ether measures each radio's airtime (hil/air/law.py).

The rig computes each session's key (hil/air/tap.py), so it finds a frame with another key, a nonce
used twice, and an answer to a forged frame. Only one gateway may answer a HELLO.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from hil.judge.links import ENDS, RESTORED
from hil.judge.silences import Silences
from hil.observe.history import Event, taking

MODEM = "gateway"
FOREIGN = "foreign"
"""Name that a history gives to radios that do not belong to the run."""
STARTS_GATEWAY = ("kill -9 of the gateway", "power cut of the gateway", RESTORED)
"""Kinds of faults after which the gateway starts again, by the beginnings of their names."""
BUDGET, AN_ANSWER, RESERVED = 360.0, 0.2, 360 / 64
"""Airtime in seconds. BUDGET: the legal limit in one hour of sub-band P. AN_ANSWER: tolerance, the
airtime of almost two answers at SF7. RESERVED: what a gateway may count as sent after a kill
(gateway/links/lora/ledger_file.py)."""
WRONG_FRAMES = {
    "strange": "{end} sent {items} that fit no session of the board",
    "reused": "{end} sent {items} with a nonce that was used before for other content",
    "unsent": "the gateway answered {items} that the board had never sent",
    "unrecorded": "the board sent PUBREL for {items} without PUBREC [MQTT-4.3.3-4]",
}
"""Events of frames that no end may send, each with a sentence."""


def wrong(events: Sequence[Event]) -> list[str]:
    broken = [
        f"a transmission broke the radio law: {event.data['why']}"
        for event in events
        if (event.hop, event.event) == ("air", "breach")
    ]
    return (
        broken
        + _wrong_turns(events)
        + (_displaced_boards(events) if _air(events).get("foreign") else [])
    )


def _wrong_turns(events: Sequence[Event]) -> list[str]:
    found: Counter[tuple[str, str, str]] = Counter()
    nonces: dict[tuple[str, int], tuple[object, ...]] = {}
    answered: dict[tuple[str, int], str] = {}
    silences = Silences(events)
    sentences: dict[str, None] = {}
    for event in events:
        if event.hop != "air":
            continue
        with taking(event):
            data, line = event.data, str(event.data.get("line"))
            if event.event in WRONG_FRAMES:
                found[line, event.event, ENDS.get(data.get("direction", ""), "")] += 1
            elif event.event == "hello":
                names = ("boot", "attempt", "incarnation", "next_sequence")
                says = line, *(data[name] for name in names)
                if nonces.setdefault(("board", data["nonce"]), says) != says:
                    sentences[f"{line} greeted twice with the nonce {data['nonce']:016x}"] = None
            elif event.event == "offer":
                greeting, at = (line, data["board"]), data.get("at", "")
                offer = *greeting, at
                if answered.setdefault(greeting, at) != at and not silences.since(line, event.t):
                    sentences[f"two gateways answered one greeting of {line}"] = None
                if nonces.setdefault(("gateway", data["gateway"]), offer) != offer:
                    nonce = f"{data['gateway']:016x}"
                    sentences[
                        f"the gateway offered {line} a session with the used nonce {nonce}"
                    ] = None
    return list(sentences) + [
        f"on the air of {line} "
        + WRONG_FRAMES[event].format(end=end, items=f"{count} {_subject(event)}{'s' * (count > 1)}")
        for (line, event, end), count in found.items()
    ]


def _starts_gateway(event: Event) -> bool:
    """Whether a fault has ended the gateway, which then starts again."""
    happened = (event.hop, event.event) == ("gateway", "happened")
    return happened and event.data["kind"].startswith(STARTS_GATEWAY)


def _subject(event: str) -> str:
    return "publication" if event == "unrecorded" else "frame"


def doubts(events: Sequence[Event]) -> list[str]:
    air = _air(events)
    lost, foreign, hour, deaf, reasons = 0, 0, 0.0, [], []
    for event in events:
        with taking(event):
            if (event.hop, event.event) == ("air", "radio"):
                heard, line = event.data.get("foreign", 0), event.data["line"]
                if line == MODEM:
                    foreign, hour = heard, event.data.get("hour", 0.0)
                elif line != FOREIGN and not heard:
                    deaf.append(line)
                if event.data.get("shared") == 0:
                    reasons.append(f"no frame of {line} was heard by two gateways")
            elif (event.hop, event.event) == ("air", "replayed"):
                lost += event.data["lost"]  # of boards and gateway: boards hear each other, too
    if (most := _longest(events)) < (wanted := air.get("turns", 0)):
        reasons.append(f"no session had {wanted} publications: the longest had {most}")
    if (trace := air.get("trace")) and not lost:
        reasons.append(f"the air should have lost frames as in {trace}, but lost none")
    if air.get("foreign") and foreign < (planned := air["foreign_frames"]):
        reasons.append(
            f"the gateway heard {foreign} of {planned} planned frames of a foreign radio"
        )
    if air.get("foreign"):
        reasons += [f"{line} has heard nothing of the foreign radio" for line in sorted(deaf)]
    kills = sum(map(_starts_gateway, events))
    before = air.get("sent_before", 0.0)
    least = max(BUDGET - RESERVED * kills - AN_ANSWER, before + AN_ANSWER)
    if before and hour < least:
        reasons.append(
            f"the gateway should have used up its airtime, but sent only {hour:.1f} s in an hour"
        )
    return reasons


def _longest(events: Iterable[Event]) -> int:
    """Return the largest number of publications that a board has sent by air in one session."""
    turns: Counter[str] = Counter()
    most = 0
    for event in events:
        with taking(event):
            if event.hop == "air" and event.event in ("welcome", "publish"):
                line = event.data["line"]
                turns[line] = turns[line] + 1 if event.event == "publish" else 0
                most = max(most, turns[line])
    return most


def _air(events: Iterable[Event]) -> dict[str, Any]:
    """Return the bench's table `air`, or {} if the bench has none."""
    for event in events:
        with taking(event):
            if (event.hop, event.event) == ("rig", "run"):
                return event.data["bench"].get("air") or {}
    return {}


def _displaced_boards(events: Iterable[Event]) -> list[str]:
    """Return a sentence for each board that left a session because of a foreign radio. A board that
    is in a session, and has not restarted, sends HELLO only if the gateway has restarted. So more
    such HELLOs than starts of the gateway are a mistake.
    """
    boots: dict[str, int] = {}
    met: set[str] = set()
    again: Counter[str] = Counter()
    starts = 0
    for event in events:
        with taking(event):
            match event.hop, event.event:
                case "air", "hello":
                    line, boot = event.data["line"], event.data["boot"]
                    again[line] += line in met and boots.get(line) == boot
                    boots[line] = boot
                    met.discard(line)
                case "air", "welcome":
                    met.add(event.data["line"])
                case _ if _starts_gateway(event):
                    starts += 1
    return [
        f"{line} sent HELLO in {count} sessions without having restarted, but only {starts} of them"
        " can be due to a restart of the gateway: the bench has a foreign radio"
        for line, count in sorted(again.items())
        if count > starts
    ]
