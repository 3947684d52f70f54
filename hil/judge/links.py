"""Checks the sessions of the boards' lines, as seen on the wires.

In: a history. Out: mistakes in the sessions.

The rig itself computes a session's seed from the handshake, so it finds mistakes that both ends
make alike: frames with a seed that does not follow from the handshake, and one seed for two
sessions. (With such a seed, a frame from before a restart would count as new.) The rig sees which
frames arrive whole, so it finds acknowledgements of damaged frames. This module also finds lost
MQTT sessions of boards; no bench lets them expire. It finds forged HELLOs that end a session, and
PUBLISH packets after the PUBREL of the same publication.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from hil.formats.frames import SEED_INPUTS
from hil.judge.silences import Silences
from hil.observe.history import Event, taking

ENDS = {"up": "the board", "down": "the gateway"}
TAKERS = {"up": "the gateway", "down": "the board"}
RESTORED = "gateway's store restored from a backup"
"""Name of the kind of fault after which the gateway has lost the boards' sessions."""
UNKNOWN_IDENTIFIER = 0x92
"""Reason code of a PUBCOMP: the gateway does not know the identifier (MQTT 5, section 3.7.2.1)."""
WORN = "EEPROM worn"
"""Name of the kind of fault after which a board may forget that it has released a publication."""
TORN = 2
"""Largest number of frames per session and direction that may be incomplete: one if the sender lost
its power or was killed, and one more if this happens again before its HELLO. In 5,900 sessions of
boards that lost their power many times, none had more than one."""


def wrong(events: Sequence[Event]) -> list[str]:
    reasons = []
    begun: dict[tuple[int, ...], str] = {}
    strange: dict[tuple[str, str], list[str]] = defaultdict(list)
    damaged: Counter[tuple[str, str]] = Counter()
    reasons += _forgotten(events) + _published_again(events)
    for event in events:
        with taking(event):
            if (event.hop, event.event) == ("wire", "welcome"):
                line, inputs = _session(event)
                if inputs in begun:
                    reasons.append(_used_twice(line, begun[inputs], inputs))
                begun.setdefault(inputs, line)
            elif (event.hop, event.event) == ("wire", "struck"):
                reasons += _displaced_board(event)
            elif (event.hop, event.event) == ("wire", "unarrived"):
                end = TAKERS[event.data["direction"]]
                damaged[str(event.data["line"]), end] += int(event.data["frames"])
            elif (event.hop, event.event) == ("wire", "session"):
                line, inputs = _session(event)
                for direction in ENDS:
                    if sentence := _strange(event.data[direction], inputs):
                        strange[line, ENDS[direction]].append(sentence)
    reasons += [
        f"on the line of {line} {end} acknowledged {count} frame{'s' * (count > 1)} that never"
        " arrived whole"
        for (line, end), count in damaged.items()
    ]
    reasons += [
        f"on the line of {line} {end} sent frames that do not fit the seed of their session:"
        f" {found[0]}" + f"; such sessions: {len(found)}" * (len(found) > 1)
        for (line, end), found in strange.items()
    ]
    return reasons


def _displaced_board(event: Event) -> list[str]:
    """Return a sentence if a board had to greet again, because another program forged its HELLO."""
    data = event.data
    if data["action"] != "forge" or not data["greetings"]:
        return []
    return [f"{data['line']} had to greet again after another program greeted in its name"]


def _forgotten(events: Sequence[Event]) -> list[str]:
    """Return a sentence for each board that wanted to continue its session, but whose gateway had
    forgotten it. A loss is excused if the gateway's store was restored from a backup before, or if
    the gateway could not reach another gateway of its site.
    """
    silences = Silences(events)
    known: dict[tuple[str, int], int] = {}
    sentences: dict[str, None] = {}
    restored = [event.data["restored"] for event in events if is_restore(event)]
    for event in sorted(events, key=lambda event: event.t):
        if event.hop in ("wire", "air") and event.event == "connack":
            with taking(event):
                data = event.data
                session = str(data["line"]), int(data["incarnation"])
                if data["reason"]:
                    continue
                goes_on = session in known and not data["clean"]
                excused = silences.excuse(session[0], event.t) or any(
                    known.get(session, 0) < moment < event.t for moment in restored
                )
                if goes_on and not data["session_present"] and not excused:
                    sentences[f"the gateway has forgotten the session of {session[0]}"] = None
                known[session] = event.t
    return list(sentences)


def _published_again(events: Sequence[Event]) -> list[str]:
    """Return a sentence for each board that has sent PUBLISH after PUBREL for the same publication.
    A board records a release before it sends PUBREL (firmware/JOURNAL.md), so even after a power
    cut it repeats PUBREL. A board may send PUBLISH if the gateway has lost the session or the
    identifier, or if the board's EEPROM is worn.
    """
    released: dict[str, set[int]] = defaultdict(set)
    again: Counter[str] = Counter()
    worn = {
        event.hop for event in events if event.event == "happened" and event.data["kind"] == WORN
    }
    for event in sorted(events, key=lambda event: event.t):
        if event.hop not in ("wire", "air"):
            continue
        with taking(event):
            data = event.data
            match event.event, data.get("direction", "up"):
                case "connack", _ if not data["reason"] and not data["session_present"]:
                    released[data["line"]].clear()
                case "pubrel", "up":
                    released[data["line"]].add(data["id"])
                case "refused", "down" if data["reason"] == UNKNOWN_IDENTIFIER:
                    released[data["line"]].discard(data["id"])
                case "publish", "up" if data.get("id") in released[data["line"]]:
                    again[data["line"]] += 1
    return [
        f"{line} sent PUBLISH again for {count} publication{'s' * (count > 1)} after PUBREL"
        for line, count in again.items()
        if line not in worn
    ]


def is_restore(event: Event) -> bool:
    return event.event == "happened" and event.data["kind"] == RESTORED


def _session(event: Event) -> tuple[str, tuple[int, ...]]:
    return str(event.data["line"]), tuple(int(event.data[name]) for name in SEED_INPUTS)


def _used_twice(line: str, before: str, inputs: tuple[int, ...]) -> str:
    where = f"{line} began" if line == before else f"{before} and {line} have begun"
    return f"{where} two sessions with the same seed ({_inputs_text(inputs)})"


def _strange(way: dict[str, int], inputs: tuple[int, ...]) -> str | None:
    sent = way["strange"] + way["fitting"]
    if way["strange"] <= TORN:
        return None
    return f"{way['strange']} of {sent} ({_inputs_text(inputs)})"


def _inputs_text(inputs: tuple[int, ...]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(SEED_INPUTS, inputs, strict=True))
