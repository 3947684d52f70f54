"""Whether all that a history tells is known: what nobody can read, nobody can judge.

In: a history. Out: a reason, for which the verdict is *unknown*, for each kind of event that stands
in no table of hil/README.md.
"""

from collections.abc import Iterator, Sequence

from hil.observe.history import READINGS, Event, taking

PROGRAM = frozenset({"ended", "erred", "usage", "happened", "contradiction"})
OF_CONNECTION = (
    "connack",
    "publish",
    "pubrel",
    "pubcomp",
    "refused",
    "time",
    "unread",
    "unasked",
)
"""What is told of an MQTT connection that is read along, over a line or over the air."""
EVENTS = {
    "rig": frozenset(
        {"run", "planned", "armed", "impossible", "stalled", "end", "broken", "clock", "command"}
    ),
    "board": frozenset(
        {
            "start",
            "clock",
            "publication",
            "sent",
            "connected",
            "contradiction",
            "left",
            "obeyed",
            "acknowledged",
            "resent",
            "forgotten",
            "unasked",
            "again",
            "waiting",
            "complete",
        }
    ),
    "spool": frozenset({"publication", "died", "waiting", "complete"}),
    "batch": frozenset({"publication", "changed", "contradiction", "waiting", "complete"}),
    "table": frozenset({"publication", "quarantined", "conflict", "contradiction", "complete"}),
    READINGS: frozenset({"reading", "complete"}),
    "subscriber": frozenset(
        {
            "connected",
            "subscribing",
            "subscribed",
            "received",
            "released",
            "left",
            "broken",
            "complete",
        }
    ),
    "wire": frozenset(
        {
            "ready",
            "open",
            "close",
            "hello",
            "welcome",
            *OF_CONNECTION,
            "unarrived",
            "session",
            "gone",
            "back",
            "noise",
            "replayed",
            "armed",
            "struck",
            "count",
        }
    ),
    "air": frozenset(
        {
            "hello",
            "offer",
            "welcome",
            *OF_CONNECTION,
            "strange",
            "reused",
            "unsent",
            "unrecorded",
            "replayed",
            "radio",
            "breach",
        }
    ),
    "gateway": PROGRAM,
    "uplink": PROGRAM,
    "ingest": PROGRAM,
    "second ingest": PROGRAM,
    "landing": frozenset({"happened", "reworded"}),
}
"""What may happen at each hop; to a board or a client also a fault (`happened`), under its name."""


def strange(events: Sequence[Event]) -> Iterator[str]:
    names: set[str] = set()
    programs: set[str] = set()
    for event in events:
        with taking(event):
            if (event.hop, event.event) == ("rig", "run"):
                tables = event.data["bench"].get("client", ())
                clients = sum(table.get("count", 1) for table in tables)
                names |= event.data["plan"]["readings"].keys()
                gateways = [table["name"] for table in event.data["bench"].get("gateway", ())]
                programs |= {f"{kind}-{of}" for kind in ("gateway", "uplink") for of in gateways}
                names |= {f"client-{number}" for number in range(1, clients + 1)}
    found: dict[tuple[str, str], Event] = {}
    for event in events:
        to_one = event.event == "happened" and event.hop in names
        known = PROGRAM if event.hop in programs else EVENTS.get(event.hop, ())
        if event.event not in known and not to_one:
            found.setdefault((event.hop, event.event), event)
    for (hop, name), first in found.items():
        where = f"line {first.line}: " if first.line else ""
        yield f"{where}nothing is known of an event `{name}` of hop `{hop}`"
