"""Checks the sessions of boards with a radio, as the ether sees their frames.

In: a history. Out: mistakes in the sessions.

The rig computes the key of a session from the handshake by itself (hil/air/tap.py), so it sees
mistakes that both ends make alike: a frame with a key that does not follow from the handshake, or a
nonce used twice. The rig sees all frames of each board, so it finds an answer to a forged frame. If
several gateways hear a HELLO, only one may answer it.
"""

from collections import Counter
from collections.abc import Sequence

from hil.judge.links import ENDS
from hil.judge.silences import Silences
from hil.observe.history import Event, taking

WRONG = {
    "strange": "{end} sent {items} that fit no session of the board",
    "reused": "{end} sent {items} with a nonce that was used before for other content",
    "unsent": "the gateway answered {items} that the board had never sent",
    "unrecorded": "the board sent PUBREL for {items} without PUBREC [MQTT-4.3.3-4]",
}


def wrong(events: Sequence[Event]) -> list[str]:
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
            if event.event in WRONG:
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
        + WRONG[event].format(end=end, items=f"{count} {_subject(event)}{'s' * (count > 1)}")
        for (line, event, end), count in found.items()
    ]


def _subject(event: str) -> str:
    return "publication" if event == "unrecorded" else "frame"
