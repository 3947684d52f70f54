"""What the ether says of the run. In: a history. Out: a sentence for each time that a radio broke
the law of the air. The ether measures each radio's airtime by itself (hil/air/law.py).
"""

from collections.abc import Iterable

from hil.observe.history import Event


def wrong(events: Iterable[Event]) -> list[str]:
    return [
        f"the law of the air was broken: {event.data['why']}"
        for event in events
        if (event.hop, event.event) == ("air", "breach")
    ]
