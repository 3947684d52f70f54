"""The boards' publications as seen on the wires. In: events of the wires, and publications of
boards. Out, for each publication: the payloads that the board sent; the time of the board's PUBREL,
which shows that the gateway has acknowledged the publication; and the number of new sessions in
which the gateway may have accepted the publication again.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hil.judge.senml import Record, decode, says
from hil.observe.history import Event

OnLine = tuple[str, int]
"""Name of a line, and a packet identifier on this line."""


class Message(Protocol):
    """A publication, as far as this module needs it."""

    payloads: set[str]
    acknowledged: int | None
    repeats: int
    again: bool


@dataclass(slots=True)
class Lines:
    publications: list[tuple[Event, Message]] = field(default_factory=list)
    _sent: dict[OnLine, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    _released: dict[OnLine, list[int]] = field(default_factory=lambda: defaultdict(list))
    _fresh: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def take(self, event: Event) -> None:
        data = event.data
        match event.event:
            case "publish" if data["direction"] == "up" and "payload" in data:
                self._sent[data["line"], data["id"]].append((event.t, data["payload"]))
            case "pubrel" if data["direction"] == "up":
                self._released[data["line"], data["id"]].append(event.t)
            case "connack" if not data["session_present"] and not data["reason"]:
                self._fresh[data["line"]].append(event.t)

    def tell(self) -> None:
        """Note what packets show about each publication. Call this after all events were added."""
        for event, message in self.publications:
            self._tell(event, message)

    def _tell(self, event: Event, message: Message) -> None:
        on_line = event.data["device"], event.data["sequence"] & 0xFFFF
        records = tuple(Record(*record) for record in event.data.get("records", ()))
        own = [(t, payload) for t, payload in self._sent[on_line] if _is(payload, records)]
        message.payloads |= {payload for _, payload in own}
        if not own:
            return
        first, last = own[0][0], own[-1][0]
        message.acknowledged = next((t for t in self._released[on_line] if t > first), None)
        lost = sum(first < t < last for t in self._fresh[on_line[0]])
        message.repeats += lost
        message.again = message.again or bool(lost)


def _is(payload: str, records: Sequence[Record]) -> bool:
    """Whether a payload may be from a publication with these records; always true without any."""
    return not records or says(decode(bytes.fromhex(payload)), records)
