"""Checks that a history has only kinds of events that the judge knows, because the judge ignores
all others. In: a history. Out: for each kind of event that is in no table of hil/HISTORY.md, a
reason for the verdict *unknown*.
"""

from collections.abc import Iterator, Sequence

from hil.observe.history import READINGS, Event, taking

PROGRAM = frozenset({"ended", "erred", "usage", "happened", "contradiction", "figures", "remains"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OF_CONNECTION = "connack publish pubrel pubcomp refused time unread unasked"
"""Events of an MQTT connection, on a line or in the air."""
EVENTS = {
    "rig": _words("armed broken clock command end impossible planned run stalled"),
    "board": _words(
        "acknowledged again clock complete connected contradiction forgotten left obeyed "
        "provisioned publication resent sent start unasked waiting"
    ),
    "spool": _words("complete died publication waiting"),
    "batch": _words("changed complete contradiction publication waiting"),
    "table": _words("complete conflict contradiction publication quarantined"),
    READINGS: _words("complete reading"),
    "states": _words("changed held"),
    "walk": _words("tried"),
    "other broker": _words("happened"),
    "subscriber": _words("broken complete connected left received released subscribed subscribing"),
    "wire": _words(
        "armed back close count gone hello noise open ready replayed session struck "
        "unarrived welcome " + OF_CONNECTION
    ),
    "air": _words(
        "breach hello offer radio replayed reused strange unrecorded unsent welcome "
        + OF_CONNECTION
    ),
    "gateway": PROGRAM,
    "uplink": PROGRAM,
    "ingest": PROGRAM,
    "second ingest": PROGRAM,
    "landing": _words("happened landed remains reworded"),
}
"""Known events of each hop. (A hop named like a board or client has only the event `happened`.)"""


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
