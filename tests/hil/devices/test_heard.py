"""The packets of a real board: the events that they add to the history, and the publications that
the board still has to send.
"""

from pathlib import Path
from typing import Any

import cbor2
import pytest

from hil.devices.heard import Heard
from hil.observe.history import Event, History, read

INCARNATION = 0xC0FFEE


def payload(value: float, **fields: float) -> str:
    return cbor2.dumps(
        [
            {-2: "real-1:", 0: "adc0", 2: value},
            *({0: name, 2: value} for name, value in fields.items()),
        ]
    ).hex()


class Board:
    """A board whose packets the test determines."""

    def __init__(self, folder: Path) -> None:
        self.history = History(folder / "history.jsonl")
        self.sent = Heard("real-1", self.history)

    def hello(self, next_sequence: int, boot: int = 1, incarnation: int = INCARNATION) -> None:
        self.sent.take(
            "hello", {"incarnation": incarnation, "next_sequence": next_sequence, "boot": boot}
        )

    def publish(self, sequence: int, text: str, topic: str = "sensors/real-1/adc0") -> None:
        self.say("publish", sequence, topic=topic, payload=text)

    def say(self, event: str, sequence: int, direction: str = "up", **data: Any) -> None:
        self.sent.take(event, {"direction": direction, "id": sequence & 0xFFFF, **data})

    def complete(self, sequence: int) -> None:
        self.say("pubrel", sequence)
        self.say("pubcomp", sequence, "down")

    @property
    def events(self) -> list[Event]:
        return list(read(self.history.path))

    @property
    def told(self) -> list[tuple[str, int]]:
        return [(event.event, event.data["sequence"]) for event in self.events]


@pytest.fixture
def board(tmp_path: Path) -> Board:
    board = Board(tmp_path)
    board.hello(1, incarnation=0)
    board.sent.take("welcome", {"incarnation": INCARNATION})
    return board


def test_a_board_has_produced_what_comes_before_its_next_sequence(board: Board) -> None:
    board.publish(1, payload(4), "sensors/real-1/status")
    board.publish(2, payload(2.5))
    board.complete(1)
    assert (board.sent.readings, board.sent.journalled, board.sent.waiting) == (1, 2, 1)
    board.hello(5, boot=2)
    assert (board.sent.journalled, board.sent.waiting, board.sent.boot) == (4, 3, 2)
    board.sent.close(5)
    assert board.told == [
        ("publication", 1),
        ("publication", 2),
        ("publication", 3),
        ("publication", 4),
    ] + [("waiting", sequence) for sequence in (2, 3, 4)]
    status, reading, unseen = board.events[:3]
    assert status.data == {
        "device": "real-1",
        "incarnation": INCARNATION,
        "sequence": 1,
        "kind": "status",
        "topic": "sensors/real-1/status",
        "payload": payload(4),
    }
    assert (reading.data["kind"], reading.data["payload"]) == ("reading", payload(2.5))
    assert "payload" not in unseen.data
    assert board.sent.contradictions == []


def test_a_publication_may_come_in_other_words_and_not_with_other_values(board: Board) -> None:
    board.publish(1, payload(2.5, bad=3))
    board.publish(1, payload(2.5, bad=3))
    board.publish(1, payload(2.5, bad=4))
    assert board.told == [("publication", 1), ("sent", 1)]
    board.publish(1, payload(2.6))
    assert board.events[-1].event == "contradiction"
    assert "sequence 1 was sent as" in board.sent.contradictions[0]


def test_a_publication_after_its_pubrel_is_one_that_the_gateway_did_not_know(board: Board) -> None:
    board.publish(1, payload(2.5))
    board.say("pubrel", 1)
    board.say("pubrel", 1)
    board.publish(1, payload(2.5))
    board.publish(1, payload(2.5))
    assert board.told == [("publication", 1), ("again", 1)]
    board.complete(1)
    assert (board.sent.waiting, board.sent.published(1)) == (0, True)


@pytest.mark.parametrize(
    ("next_sequence", "incarnation", "text"),
    [
        (2, INCARNATION, "its next sequence is 2, but it has sent 2"),
        (1, INCARNATION, "its next sequence is 1, but it has sent 2"),
        (3, 7, "its incarnation was 00c0ffee and became 00000007"),
    ],
)
def test_a_board_that_has_forgotten_contradicts_itself(
    board: Board, next_sequence: int, incarnation: int, text: str
) -> None:
    board.publish(1, payload(2.5))
    board.publish(2, payload(2.5))
    board.hello(3)
    assert board.sent.contradictions == []
    board.hello(next_sequence, incarnation=incarnation)
    assert board.sent.contradictions == [text]


def test_command_counts_as_obeyed_when_the_board_acknowledges_it(board: Board) -> None:
    board.say("publish", 7, "down", topic="commands/real-1", payload=b"interval 200".hex())
    board.say("publish", 7, "down", topic="commands/real-1", payload=b"interval 200".hex())
    assert board.sent.obeyed == []
    board.say("pubcomp", 7)
    board.say("pubcomp", 7)
    assert board.sent.obeyed == ["interval 200"]


def test_sequences_are_wider_than_packet_identifiers(board: Board) -> None:
    for sequence in (0xFFFE, 0xFFFF, 0x10001, 0x10002):
        board.publish(sequence, payload(sequence))
    assert [sequence for _, sequence in board.told] == [0xFFFE, 0xFFFF, 0x10001, 0x10002]


@pytest.mark.parametrize("own", [True, False])
def test_payload_that_is_no_senml_may_be_put_in_other_words_by_a_sketch(
    tmp_path: Path, own: bool
) -> None:
    """A user's sketch may publish a reading again with another payload: the board may have learned
    the time in between. Without `own`, the rig records a contradiction.
    """
    history = History(tmp_path / "history.jsonl")
    sent = Heard("sketch-1", history, own=own)
    for text in (b'{"opening":1}', b'{"opening":1,"time":9}'):
        data = {"direction": "up", "id": 1, "topic": "doors/sketch-1", "payload": text.hex()}
        sent.take("publish", data)
    assert bool(sent.contradictions) is not own
    assert [event.event for event in read(history.path)][1:] == ["sent" if own else "contradiction"]


def test_values_of_senml_of_a_sketch_stay(tmp_path: Path) -> None:
    sent = Heard("sketch-1", History(tmp_path / "history.jsonl"), own=True)
    for value in (1.0, 2.0):
        data = {"direction": "up", "id": 1, "topic": "a", "payload": payload(value)}
        sent.take("publish", data)
    assert sent.contradictions
