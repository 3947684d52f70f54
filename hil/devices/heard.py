"""The publications of a real board, known from the packets that it sends, because its EEPROM cannot
be read.

In: the packets of the board's side (`hil/wire/tap.py`): greetings, publications, acknowledgements.
Out: events of hop `board` in the history, and the number of publications that the board still
holds.

A HELLO carries the next sequence, from the EEPROM: the board has produced all sequences below it,
from 1. The first PUBLISH of a publication defines its expected content. After a restart the
board may send the same values in another form.
"""

from typing import Any

from hil.judge import senml
from hil.observe.history import History

IDENTIFIERS = 1 << 16
STATUS = "/status"  # end of the topic of a board's status


class Heard:
    """A real board's publications. incarnation, next, boot: incarnation, next sequence and number
    of the start, as the board last reported them; 0 before its first report. readings: number of
    publications seen, without statuses. obeyed: commands that the board has acknowledged, in order.
    contradictions: events that no correct firmware causes.
    """

    def __init__(self, device: str, history: History, *, own: bool = False) -> None:
        """Create the record. own: whether a sketch's payloads other than SenML are accepted."""
        self.incarnation = self.next = self.boot = self.readings = 0
        self.obeyed: list[str] = []
        self.contradictions: list[str] = []
        self._device = device
        self._history = history
        self._own = own
        self._payloads: dict[int, list[bytes]] = {}  # by sequence, in order
        self._open: set[int] = set()
        self._released: set[int] = set()
        self._unanswered: dict[int, str] = {}  # open commands, by packet identifier
        self._at: int | None = None
        """Time on the wire, in ns, of the event that is being handled. The rig may read the event
        much later. If this is None, the time of reading is used instead.
        """

    @property
    def waiting(self) -> int:
        """Return the number of publications that the board is known to hold: not sent yet, or sent
        and not completed.
        """
        return len(self._open) + max(0, self.next - 1 - len(self._payloads))

    @property
    def journalled(self) -> int:
        return max(self.next - 1, len(self._payloads))

    @property
    def open(self) -> frozenset[int]:
        """Return the sequences of the publications that were seen and not completed."""
        return frozenset(self._open)

    def published(self, sequence: int) -> bool:
        """Return whether a publication was seen and completed."""
        return sequence in self._payloads and sequence not in self._open

    def take(self, event: str, data: dict[str, Any]) -> None:
        self._at = data.get("t")
        match event, data.get("direction"):
            case "hello", _:
                self._greeted(data["incarnation"], data["next_sequence"], data["boot"])
            case "welcome", _:
                self.incarnation = self.incarnation or data["incarnation"]
            case "publish", "up" if data["id"]:
                self._published(
                    self.sequence(data["id"]), data["topic"], bytes.fromhex(data["payload"])
                )
            case "pubrel", "up":
                self._released.add(self.sequence(data["id"]))
            case "pubcomp", "down":
                self._open.discard(self.sequence(data["id"]))
            case "publish", "down":
                self._unanswered[data["id"]] = bytes.fromhex(data["payload"]).decode(
                    errors="replace"
                )
            case "pubcomp", "up" if data["id"] in self._unanswered:
                self.obeyed.append(self._unanswered.pop(data["id"]))

    def close(self, next_sequence: int) -> None:
        """Record the publications that were journalled but never arrived, and those that the board
        still holds. next_sequence: the board's next sequence at the end of the run.
        """
        self._at = None
        self._greeted(self.incarnation, next_sequence, self.boot)
        unseen = [
            sequence
            for sequence in range(1, self.next)
            if sequence not in self._payloads and sequence & 0xFFFF
        ]
        for sequence in unseen:
            self._enter("publication", sequence, kind="reading", records=[])
        for sequence in sorted({*unseen, *self._open}):
            self._enter("waiting", sequence)

    def sequence(self, identifier: int) -> int:
        """Return the sequence of a publication that was sent under this packet identifier."""
        return sequence_of(identifier, max(self._payloads, default=1))

    def _greeted(self, incarnation: int, next_sequence: int, boot: int) -> None:
        if incarnation and self.incarnation not in (0, incarnation):
            self.contradict(
                f"its incarnation was {self.incarnation:08x} and became {incarnation:08x}"
            )
        newest = max(self.next - 1, *self._payloads, 0)
        if next_sequence <= newest:
            self.contradict(f"its next sequence is {next_sequence}, but it has sent {newest}")
        self.incarnation = incarnation or self.incarnation
        self.next = max(next_sequence, newest + 1)
        self.boot = boot

    def _published(self, sequence: int, topic: str, payload: bytes) -> None:
        # the gateway had answered by PUBREC, and later did not know the PUBREL (0x92)
        if sequence in self._released:
            self._released.discard(sequence)
            self._enter("again", sequence)
        self._open.add(sequence)
        if sequence not in self._payloads:
            self._payloads[sequence] = [payload]
            status = topic.endswith(STATUS)
            self.readings += not status
            self._enter(
                "publication",
                sequence,
                kind="status" if status else "reading",
                topic=topic,
                payload=payload.hex(),
            )
        elif payload not in self._payloads[sequence]:
            self._reworded(sequence, payload)

    def _reworded(self, sequence: int, payload: bytes) -> None:
        first = self._payloads[sequence][0]
        self._payloads[sequence].append(payload)
        own = self._own and senml.decode(first) is None
        if own or _values(first) == _values(payload):
            self._enter("sent", sequence, payload=payload.hex())
        else:
            self.contradict(f"sequence {sequence} was sent as {first.hex()} and as {payload.hex()}")

    def contradict(self, text: str) -> None:
        self.contradictions.append(text)
        self._history.add("board", "contradiction", device=self._device, text=text)

    def _enter(self, event: str, sequence: int, **data: Any) -> None:
        self._history.add(
            "board",
            event,
            self._at,
            device=self._device,
            incarnation=self.incarnation,
            sequence=sequence,
            **data,
        )


def sequence_of(identifier: int, near: int) -> int:
    """Return the sequence above 0 nearest to `near` that has `identifier` as its low 16 bits."""
    below = near - (near - identifier) % IDENTIFIERS
    nearest = min((below, below + IDENTIFIERS), key=lambda sequence: abs(sequence - near))
    return nearest if nearest > 0 else identifier


def _values(payload: bytes) -> list[tuple[str, float | None]] | bytes:
    """Return the names and values of a payload's records, without records about the state of the
    link. A payload that is sent again has the same names and values. If the payload is not SenML,
    return it unchanged.
    """
    records = senml.decode(payload)
    return (
        payload
        if records is None
        else [(one.name, one.value) for one in records if not senml.of_link(one)]
    )
