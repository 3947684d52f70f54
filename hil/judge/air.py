"""What the ether says of the run. In: a history. Out: a sentence for each time that a radio broke
the law of the air; and a doubt if the air was to lose frames, and lost none. The ether measures
each radio's airtime by itself (hil/air/law.py).
"""

from collections.abc import Iterable

from hil.observe.history import Event, taking


def wrong(events: Iterable[Event]) -> list[str]:
    return [
        f"the law of the air was broken: {event.data['why']}"
        for event in events
        if (event.hop, event.event) == ("air", "breach")
    ]


def doubts(events: Iterable[Event]) -> list[str]:
    trace, lost = None, 0
    for event in events:
        with taking(event):
            match event.hop, event.event:
                case "rig", "run":
                    trace = (event.data["bench"].get("air") or {}).get("trace")
                case "air", "radio":
                    lost += event.data.get("lost", 0)
    return (
        [f"the air was to lose frames as in {trace}, and lost none"] if trace and not lost else []
    )
