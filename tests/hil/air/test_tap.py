"""The rig reads frames at the ether. In these tests, board and gateway use the gateway's codec, and
some frames are damaged.
"""

from dataclasses import replace
from typing import Any

import pytest

from gateway.links.lora.frames import ANSWER, DOWN, TURN, UP, Header, Hello, SessionCipher, Welcome
from gateway.links.lora.frames import who_frame as who_of
from gateway.links.lora.packing import Answer, pack_answer, pack_turn
from gateway.links.lora.packing import Turn as Said
from hil.air.tap import AirTap
from hil.formats import packets
from hil.formats.packets import Connack, Connect, Kind, Packet, Property, Publish, write

KEY = bytes(range(16))
BOARD, ATTIC, BARN = "lora-1", "attic", "barn"
DONE = "done"
CONNECT = Connect("lora-1", clean_start=False)
ALIAS = ((Property.TOPIC_ALIAS, 1),)


def reading(identifier: int, payload: bytes = b"v", topic: str = "") -> Publish:
    return Publish(topic, payload, 2, identifier, properties=ALIAS)


def answer(kind: Kind, identifier: int, reason: int = 0) -> packets.Answer:
    return packets.Answer(kind, identifier, reason)


class Talk:
    """A board, a gateway, and the rig's tap. Each greeting begins a new session."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.times: dict[str, int] = {}
        """Time of the tap's last report of each event."""
        self.frames = 0
        self.tap = AirTap(BOARD, lambda: KEY, self.enter)
        self.gateway = ATTIC
        """The gateway that hears the board and answers it."""
        self.counter = -1
        self.said = Said(())
        self.key = b""

    def enter(self, t: int, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, data))
        self.times[event] = t

    def feed(self, direction: str, frame: bytes, heard: bool) -> None:
        """Feed a frame to the tap, one unit of time after the previous frame."""
        self.frames += 1
        sender, other = (BOARD, self.gateway) if direction == "up" else (self.gateway, BOARD)
        self.tap.feed(sender, frame, [other] * heard, self.frames)

    def greet(
        self, boot: int, nonce: bytes = b"gateways", entropy: int = 1, heard: bool = True
    ) -> bytes:
        hello = Hello(7, 1, boot, 0, 5, 9, 96).signed(KEY, entropy)
        self.feed("up", hello.to_bytes(), True)
        offer = Welcome(7, 1, nonce, 5, 96, 0).signed(KEY, hello).to_bytes()
        self.feed("down", offer, heard)
        self.key, self.counter = hello.session(KEY, nonce), -1
        return offer

    def turn(self, *said: Packet, heard: bool = True, counter: int | None = None) -> bytes:
        self.counter = self.counter + 1 if counter is None else counter
        self.said = Said(tuple(map(write, said)))
        frame = self.sealed(TURN, UP, pack_turn(self.said))
        self.feed("up", frame, heard)
        return frame

    def answered(self, *said: Packet, utc: float | None = None, heard: bool = True) -> bytes:
        content = pack_answer(Answer(tuple(map(write, said)), utc), self.said)
        frame = self.sealed(ANSWER, DOWN, content)
        self.feed("down", frame, heard)
        return frame

    def sealed(self, kind: int, direction: int, content: bytes) -> bytes:
        head = Header(7, 1, kind, self.counter & 0x3F)
        return SessionCipher(self.key).seal(head, direction, self.counter, content)

    def told(self, *events: str) -> list[dict[str, Any]]:
        """Return the data of all reports of these events, in order."""
        return [data for event, data in self.events if event in events]

    @property
    def wrong(self) -> list[str]:
        kinds = ("strange", "reused", "unsent", "unrecorded", "unasked", "unread")
        return [event for event, _ in self.events if event in kinds]


@pytest.fixture
def talk() -> Talk:
    """Return a Talk whose board has connected."""
    made = Talk()
    made.greet(3)
    made.turn(CONNECT)
    made.answered(Connack(False, 0))
    return made


def test_message_of_both_ends_is_reported_once(talk: Talk) -> None:
    first = talk.turn(reading(9, topic="s/1"))
    acknowledged = talk.answered(answer(Kind.PUBREC, 9), utc=1.5)
    for _ in range(2):
        talk.feed("up", first, True)
        talk.feed("down", acknowledged, True)
    talk.turn(answer(Kind.PUBREL, 9), reading(10))
    talk.answered(answer(Kind.PUBCOMP, 9), answer(Kind.PUBREC, 10))
    assert not talk.wrong
    assert talk.told("connack") == [
        {"session_present": False, "reason": 0, "incarnation": 5, "clean": False}
    ]
    assert [(data["id"], data["payload"]) for data in talk.told("publish")] == [
        (9, b"v".hex()),
        (10, b"v".hex()),
    ]
    assert talk.told("pubrel") == [{"direction": "up", "id": 9}]
    assert talk.told("pubcomp") == [{"direction": "down", "id": 9}]
    assert len(talk.told("time")) == 3
    assert len(talk.told("offer")) == len(talk.told("welcome")) == 1


def test_a_greeting_tells_what_stands_in_it() -> None:
    talk = Talk()
    offer = talk.greet(3)
    talk.feed("down", offer, False)
    (hello,) = talk.told("hello")
    nonce = hello.pop("nonce")
    assert hello == {"boot": 3, "attempt": 0, "incarnation": 5, "next_sequence": 9}
    gateway = int.from_bytes(b"gateways")
    assert talk.told("offer") == [{"board": nonce, "gateway": gateway, "at": ATTIC}]
    assert talk.told("welcome") == [{"incarnation": 5, "at": ATTIC}]
    assert not talk.wrong


def test_session_start_implies_a_received_offer() -> None:
    talk = Talk()
    talk.greet(3, heard=False)
    assert not talk.told("welcome")
    talk.turn(CONNECT)
    talk.turn(reading(9))
    assert talk.told("welcome") == [{"incarnation": 5, "at": ATTIC}]


def test_a_turn_is_reported_when_the_gateway_has_heard_it_or_answers_it(talk: Talk) -> None:
    lost = talk.turn(reading(9), heard=False)
    assert not talk.told("publish")
    sent = talk.frames
    talk.answered(answer(Kind.PUBREC, 9), utc=1.5)  # a foreign radio has carried the turn there
    assert len(talk.told("publish")) == 1
    assert talk.times["publish"] == sent  # the time of the turn, not of its answer
    assert talk.times["time"] == sent + 1
    talk.feed("up", lost, True)
    assert len(talk.told("publish")) == 1
    assert not talk.wrong


def test_both_ends_may_be_in_another_session(talk: Talk) -> None:
    old_key, old_counter = talk.key, talk.counter
    talk.greet(3, b"another1", entropy=2)
    talk.key, talk.counter = old_key, old_counter
    talk.turn(reading(9))
    talk.answered(answer(Kind.PUBREC, 9))
    assert not talk.wrong


def test_counters_go_on_beyond_their_low_bits(talk: Talk) -> None:
    for number in range(1, 200):
        talk.turn(reading(number))
        talk.answered(answer(Kind.PUBREC, number))
    assert not talk.wrong
    assert len(talk.told("publish")) == 199


def test_a_frame_under_another_key_fits_no_session(talk: Talk) -> None:
    """Board and gateway use a session key that does not follow from their handshake."""
    talk.key = bytes(16)
    talk.turn(reading(9))
    talk.answered(answer(Kind.PUBREC, 9))
    assert [data["direction"] for data in talk.told("strange")] == ["up", "down"]
    assert not talk.told("publish")


def test_an_answer_to_what_the_board_has_never_sent(talk: Talk) -> None:
    talk.counter += 1
    talk.said = Said((write(reading(9)),))
    talk.answered(answer(Kind.PUBREC, 9))
    assert talk.told("unsent") == [{"what": "TURN"}]


def test_offer_without_a_greeting() -> None:
    talk = Talk()
    stranger = Hello(7, 1, 3, 0, 5, 9, 96).signed(KEY, 1)
    offer = Welcome(7, 1, b"gateways", 5, 96, 0).signed(KEY, stranger)
    talk.feed("down", offer.to_bytes(), True)
    assert talk.told("unsent") == [{"what": "HELLO"}]
    assert not talk.told("offer", "welcome")


def test_an_offer_that_the_board_has_not_waited_for_is_no_meeting() -> None:
    talk = Talk()
    offer = talk.greet(3, heard=False)
    talk.greet(3, nonce=b"gateway2", entropy=2, heard=False)
    talk.feed("down", offer, True)
    assert not talk.told("welcome")
    talk.turn(CONNECT)
    assert talk.told("welcome") == [{"incarnation": 5, "at": ATTIC}]
    assert not talk.wrong


def test_recorded_publication_may_be_released_at_the_next_gateway(talk: Talk) -> None:
    talk.turn(reading(9))
    talk.answered(answer(Kind.PUBREC, 9))
    talk.gateway = BARN
    talk.greet(3, b"another1", entropy=2)
    talk.turn(CONNECT)
    talk.answered(Connack(True, 0))
    talk.turn(answer(Kind.PUBREL, 9), reading(10))
    talk.answered(answer(Kind.PUBCOMP, 9), answer(Kind.PUBREC, 10))
    assert [data["at"] for data in talk.told("offer")] == [ATTIC, BARN]
    assert not talk.wrong


def test_a_turn_that_only_another_gateway_has_heard_is_not_reported(talk: Talk) -> None:
    talk.gateway = BARN
    frame = talk.turn(reading(9))
    assert not talk.told("publish")
    talk.gateway = ATTIC
    talk.feed("up", frame, True)
    assert len(talk.told("publish")) == 1


def test_a_gateway_that_answers_in_the_session_of_another_one_fits_none_of_its_own(
    talk: Talk,
) -> None:
    talk.turn(reading(9))
    talk.gateway = BARN
    talk.answered(answer(Kind.PUBREC, 9))
    assert [data["direction"] for data in talk.told("strange")] == ["down"]
    assert not talk.told("offer")[1:]


def test_the_same_offer_of_two_gateways_is_reported_of_each(talk: Talk) -> None:
    talk.gateway = BARN
    talk.greet(3)
    assert [data["at"] for data in talk.told("offer")] == [ATTIC, BARN]
    assert len({data["gateway"] for data in talk.told("offer")}) == 1


def test_a_nonce_that_serves_for_two_contents(talk: Talk) -> None:
    talk.turn(reading(9))
    talk.answered(answer(Kind.PUBREC, 9))
    talk.answered(answer(Kind.PUBREC, 9, 0x97))
    talk.turn(reading(9, b"w"), counter=talk.counter)
    assert talk.told("reused") == [
        {"direction": "down", "counter": 1},
        {"direction": "up", "counter": 1},
    ]


def test_a_board_releases_what_the_gateway_has_recorded_and_nothing_else(talk: Talk) -> None:
    """The tap reports a PUBREL if the gateway has sent no PUBREC with success before it
    [MQTT-4.3.3-4]. A new session continues the exchanges of the previous one.
    """
    talk.turn(reading(9))
    talk.answered(answer(Kind.PUBREC, 9), heard=False)
    talk.turn(reading(10))
    talk.answered(answer(Kind.PUBREC, 10, 0x97))
    talk.greet(4, b"another1", entropy=2)
    talk.turn(CONNECT)
    talk.turn(answer(Kind.PUBREL, 9))
    assert not talk.told("unrecorded")
    talk.turn(answer(Kind.PUBREL, 10))
    talk.turn(reading(9))
    talk.turn(answer(Kind.PUBREL, 9))
    assert talk.told("unrecorded") == [{"id": 10}, {"id": 9}]


def test_an_answer_that_nothing_has_asked_for(talk: Talk) -> None:
    talk.turn(reading(9))
    talk.answered(answer(Kind.PUBREC, 9), answer(Kind.PUBCOMP, 8))
    assert talk.told("unasked") == [{"direction": "down", "id": 8, "packet": "pubcomp"}]


def test_invalid_mqtt_is_reported_and_ends_the_reading(talk: Talk) -> None:
    talk.counter += 1
    talk.feed("up", talk.sealed(TURN, UP, b"\x30\x05\x00"), True)
    assert [data["direction"] for data in talk.told("unread")] == ["up"]


def test_unread_frame_may_have_recorded_a_publication(talk: Talk) -> None:
    talk.turn(reading(9))
    talk.feed("down", talk.sealed(ANSWER, DOWN, b"\x50\x05\x00"), True)
    talk.turn(answer(Kind.PUBREL, 9))
    assert talk.wrong == ["unread"]


def test_frame_of_no_session_is_answered_with_who(talk: Talk) -> None:
    talk.feed("down", who_of(7, 1, KEY, talk.turn(reading(9))), True)
    assert not talk.wrong


def test_a_greeting_that_does_not_prove_the_key_is_strange() -> None:
    talk = Talk()
    hello = Hello(7, 1, 3, 0, 5, 9, 96).signed(KEY, 1)
    talk.feed("up", replace(hello, code=bytes(4)).to_bytes(), True)
    assert len(talk.told("strange")) == 1
