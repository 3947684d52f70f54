"""The rig's tap on a wire: it counts retransmissions of both ends as the ends do, and reports their
packets.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.links.frames import Ack, Crc16, Data
from gateway.links.greeter import Greeter
from gateway.links.roles import DeviceLink, GatewayLink
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Version,
)
from gateway.mqtt.reason import ReasonCode
from hil.formats.frames import SEED_INPUTS, Welcome, write_handshake
from hil.wire.tap import Tap

STEP = 0.02  # seconds
KEY = bytes(range(16))

Told = list[dict[str, Any]]


class Talk:
    """A device and a gateway at the two ends of a line that loses pieces, and a tap on the line.
    Time is simulated.
    """

    def __init__(self, seed: int, loss: float) -> None:
        self.told: Told = []
        self.tap = Tap(self.told.append)
        self.device = DeviceLink(
            "sensor-1", boot=5, next_sequence=9, window=2, power_on=True, random=Random(seed)
        )
        self.gateway = GatewayLink(Greeter(1, incarnation=lambda: 77))
        self._random = Random(seed)
        self._loss = loss
        self.now = 0.0

    def step(self, loss: float | None = None) -> None:
        self.now += STEP
        self.device.tick(self.now)
        self.gateway.tick(self.now)
        for direction, sender, receiver in (
            ("up", self.device, self.gateway),
            ("down", self.gateway, self.device),
        ):
            data = sender.take()
            cut = self._random.randint(0, len(data))
            for piece in (data[:cut], data[cut:]):
                self.tap.feed(direction, piece)
                if self._random.random() >= (self._loss if loss is None else loss):
                    self.tap.arrived(direction, piece)
                    receiver.receive(piece, self.now)

    def drain(self) -> None:
        """Feed the tap with the output of both ends."""
        self.tap.feed("up", self.device.take())
        self.tap.feed("down", self.gateway.take())

    def until_met(self) -> None:
        while self.device.session is None or self.gateway.session is None:
            self.step()


@given(seed=st.integers(0, 2**32), loss=st.floats(0, 0.4))
@example(seed=0, loss=0.171875)  # a frame waits for the line at the end
def test_frames_sent_again_are_counted_as_the_ends_count_them(seed: int, loss: float) -> None:
    talk = Talk(seed, loss)
    for number in range(120):
        for end in (talk.device, talk.gateway):
            if end.session is not None and number % 3 == 0:
                end.write(end.session, bytes([number]) * 30, talk.now)
        talk.step()
    talk.drain()
    again = {direction: counts["frames_again"] for direction, counts in talk.tap.counts.items()}
    assert again == {
        "up": talk.device.statistics.retransmissions,
        "down": talk.gateway.statistics.retransmissions,
    }


def test_messages_of_both_ends_are_reported_and_dup_is_counted() -> None:
    talk = Talk(1, 0.3)
    talk.until_met()
    assert talk.device.session is not None
    assert talk.gateway.session is not None
    up = [
        Connect("sensor-1"),
        Publish("t", b"one", 2, 9),
        Publish("t", b"two", 2, 10, dup=True),
        Pubrel(9),
    ]
    talk.device.write(
        talk.device.session, b"".join(encode(packet, Version.V5) for packet in up), talk.now
    )
    down = [Publish("commands/sensor-1", b"identify", 2, 3), Pubcomp(9)]
    talk.gateway.write(
        talk.gateway.session, b"".join(encode(packet, Version.V5) for packet in down), talk.now
    )
    for _ in range(200):
        talk.step()
    assert talk.tap.counts["up"]["publishes"] == 2
    assert talk.tap.counts["up"]["publishes_again"] == 1
    assert talk.tap.counts["down"]["publishes"] == 1
    hello, *rest = [told for told in talk.told if told["event"] == "hello"]
    assert hello == {
        "event": "hello",
        "name": "sensor-1",
        "boot": 5,
        "incarnation": 0,
        "next_sequence": 9,
        "power_on": True,
    }
    assert all(told == hello for told in rest)
    others = sorted((told for told in talk.told if told["event"] != "hello"), key=str)
    assert others == sorted(
        [
            {
                "event": "welcome",
                "timed": False,
                "incarnation": 77,
                "boot": 5,
                "attempt": 0,
                "board": 0,
                "gateway": 0x10001,
            },
            {"event": "publish", "direction": "up", "id": 9, "topic": "t", "payload": b"one".hex()},
            {
                "event": "publish",
                "direction": "up",
                "id": 10,
                "topic": "t",
                "payload": b"two".hex(),
            },
            {"event": "pubrel", "direction": "up", "id": 9},
            {
                "event": "publish",
                "direction": "down",
                "id": 3,
                "topic": "commands/sensor-1",
                "payload": b"identify".hex(),
            },
            {"event": "pubcomp", "direction": "down", "id": 9},
        ],
        key=str,
    )


def test_unread_bytes_are_waited_for() -> None:
    talk = Talk(1, 0)
    talk.until_met()
    assert talk.device.session is not None
    check = talk.device.session.check
    talk.tap.feed("up", Data(0, 0, encode(Connect("sensor-1"), Version.V5)).to_bytes(check))
    # frame 1, with the first byte of this packet, was not read
    halves = encode(Publish("t", b"x", 2, 9), Version.V5)
    talk.tap.feed(
        "up",
        Data(2, 0, halves[1:]).to_bytes(check)
        + Data(3, 0, halves).to_bytes(check)
        + Data(2, 0, halves[1:]).to_bytes(check),
    )
    assert talk.tap.counts["up"] == {
        "frames": 4,
        "frames_again": 1,
        "publishes": 0,
        "publishes_again": 0,
    }
    # retransmitted, as are the frames after it
    talk.tap.feed("up", Data(1, 0, halves[:1]).to_bytes(check))
    assert talk.tap.counts["up"]["publishes"] == 2
    assert talk.tap.counts["up"]["frames_again"] == 1
    assert [told["event"] for told in talk.told if told["event"] == "unread"] == []


@pytest.mark.parametrize("packets", [b"\x00\x00", b"\x30\xff\xff\xff\xff", b"\xf0\xff\xff\xff\x7f"])
def test_invalid_mqtt_is_counted_as_frames_only(packets: bytes) -> None:
    talk = Talk(1, 0)
    talk.until_met()
    assert talk.device.session is not None
    talk.device.write(
        talk.device.session, packets + encode(Publish("t", b"x", 2, 9), Version.V5), talk.now
    )
    for _ in range(20):
        talk.step()
    assert talk.tap.counts["up"]["frames"] > 0
    assert talk.tap.counts["up"]["publishes"] == 0
    assert [told["direction"] for told in talk.told if told["event"] == "unread"] == ["up"]


def between(up: list[Packet], down: list[Packet], before: bytes = b"") -> Told:
    """Let the board send `up`, then the gateway `down`. Return the tap's reports of answers that
    answer no packet. before: bytes that the board sends first, perhaps not MQTT.
    """
    talk = Talk(1, 0)
    talk.until_met()
    for end, head, said in ((talk.device, before, up), (talk.gateway, b"", down)):
        assert end.session is not None
        end.write(end.session, head + b"".join(encode(one, Version.V5) for one in said), talk.now)
        for _ in range(20):
            talk.step()
    return [told for told in talk.told if told["event"] == "unasked"]


@given(
    published=st.integers(1, 3),
    released=st.integers(0, 3),
    recorded=st.integers(0, 4),
    completed=st.integers(0, 4),
)
def test_surplus_answer_shows_a_duplicate(
    published: int, released: int, recorded: int, completed: int
) -> None:
    up = [Publish("t", b"x", 2, 9)] * published + [Pubrel(9)] * released
    told = between(up, [Pubrec(9)] * recorded + [Pubcomp(9)] * completed)
    assert [one["packet"] for one in told] == ["pubrec"] * max(0, recorded - published) + [
        "pubcomp"
    ] * max(0, completed - released)
    assert all((one["direction"], one["id"]) == ("down", 9) for one in told)


def test_start_of_an_mqtt_session_is_reported() -> None:
    talk = Talk(1, 0)
    talk.until_met()
    assert talk.device.session is not None
    assert talk.gateway.session is not None
    connect = encode(Connect("sensor-1", clean_start=False), Version.V5)
    talk.device.write(talk.device.session, connect, talk.now)
    talk.step()
    talk.gateway.write(
        talk.gateway.session, encode(Connack(session_present=True), Version.V5), talk.now
    )
    for _ in range(20):
        talk.step()
    [told] = [told for told in talk.told if told["event"] == "connack"]
    asked = {"incarnation": 77, "clean": False}
    assert told == {"event": "connack", "session_present": True, "reason": 0, **asked}


def test_each_answer_is_to_an_identifier_of_its_own_and_to_its_qos() -> None:
    assert between([Publish("t", b"x", 2, 9)], [Pubrec(10)]) != []
    assert between([Publish("t", b"x", 1, 9)], [Pubrec(9)]) != []
    assert between([Publish("t", b"x", 1, 9)], [Puback(9)]) == []


def test_unread_stream_leaves_its_requests_unknown() -> None:
    assert between([Publish("t", b"x", 2, 9)], [Pubrec(9)], before=b"\x00\x00") == []


@given(st.lists(st.tuples(st.sampled_from(("up", "down")), st.binary(max_size=60)), max_size=20))
def test_any_bytes_are_read_along(pieces: list[tuple[str, bytes]]) -> None:
    tap = Tap()
    for direction, piece in pieces:
        tap.feed(direction, piece + b"\0")


def test_refusals_of_the_gateway_are_reported() -> None:
    talk = Talk(1, 0)
    talk.until_met()
    assert talk.gateway.session is not None
    unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    down = [Pubrec(9), Pubrec(10, ReasonCode.QUOTA_EXCEEDED), Pubcomp(11, unknown), Pubcomp(12)]
    written = b"".join(encode(packet, Version.V5) for packet in down)
    talk.gateway.write(talk.gateway.session, written, talk.now)
    for _ in range(20):
        talk.step()
    assert [told for told in talk.told if told["event"] == "refused"] == [
        {"event": "refused", "direction": "down", "packet": "pubrec", "id": 10, "reason": 0x97},
        {"event": "refused", "direction": "down", "packet": "pubcomp", "id": 11, "reason": 0x92},
    ]


def sessions(talk: Talk) -> list[dict[str, Any]]:
    """Return the sessions that the tap has reported at their end, the newest first."""
    talk.tap.close()
    return [told for told in talk.told if told["event"] == "session"]


def test_frames_of_another_seed_do_not_count_for_the_session() -> None:
    talk = Talk(1, 0)
    talk.until_met()
    talk.drain()
    for direction in ("up", "down"):
        for number in range(3):
            talk.tap.feed(direction, Data(number, 0, b"x").to_bytes(Crc16(0x1234)))
    assert talk.device.session is not None
    talk.tap.feed("up", Data(0, 0, b"x").to_bytes(talk.device.session.check))
    [session] = sessions(talk)
    assert session["up"]["strange"] == session["down"]["strange"] == 3
    assert session["up"]["fitting"] >= 1


def both_talk(seed: int, loss: float) -> Talk:
    """Let both ends write for a while, and let the gateway end its session at every 40th step.
    Return the Talk.
    """
    talk = Talk(seed, loss)
    for number in range(120):
        for end in (talk.device, talk.gateway):
            if end.session is not None and number % 3 == 0:
                end.write(end.session, bytes([number]) * 30, talk.now)
        if number % 40 == 39 and talk.gateway.session is not None:
            talk.gateway.close(talk.gateway.session, talk.now)
        talk.step()
    return talk


@given(seed=st.integers(0, 2**32), loss=st.floats(0, 0.4))
def test_whole_frames_of_both_ends_fit_their_session(seed: int, loss: float) -> None:
    """Each whole frame fits the session that its sender is in, even if the other end has already
    left this session.
    """
    talk = both_talk(seed, loss)
    assert all(
        session[direction]["strange"] == 0
        for session in sessions(talk)
        for direction in ("up", "down")
    )


def test_tap_recognises_the_session_of_the_gateway_after_many_starts_of_a_board() -> None:
    """The board starts several times, and no WELCOME reaches it. With keys, a HELLO alone ends no
    session, so the gateway retransmits in its old session. The tap must still assign these frames
    to that session.
    """
    told: Told = []
    tap = Tap(told.append, lambda: KEY)
    gateway = GatewayLink(Greeter(1, key=lambda _: KEY, incarnation=lambda: 77))
    now = 0.0

    def board(boot: int) -> DeviceLink:
        return DeviceLink("sensor-1", boot=boot, key=KEY, power_on=True, random=Random(boot))

    def step(device: DeviceLink, heard: bool) -> None:
        nonlocal now
        now += STEP
        device.tick(now)
        said = device.take()
        tap.feed("up", said)
        gateway.receive(said, now)
        gateway.tick(now)
        answer = gateway.take()
        tap.feed("down", answer)
        if heard:
            device.receive(answer, now)

    first = board(5)
    while first.session is None or gateway.session is None:
        step(first, heard=True)
    gateway.write(gateway.session, b"x", now)
    for boot in range(6, 12):
        device = board(boot)
        for _ in range(10):
            step(device, heard=False)
    tap.close()
    ended = [one for one in told if one["event"] == "session"]
    assert len(ended) == 7
    assert all(one["down"]["strange"] == 0 for one in ended)


@given(seed=st.integers(0, 2**32), loss=st.floats(0, 0.4))
def test_acknowledgement_of_an_incomplete_frame_is_reported(seed: int, loss: float) -> None:
    talk = both_talk(seed, loss)
    assert [told for told in talk.told if told["event"] == "unarrived"] == []


@pytest.mark.parametrize("answer", [Ack(3), Data(0, 3, b"x")])
def test_acknowledgement_of_a_damaged_frame_is_reported(answer: Ack | Data) -> None:
    talk = Talk(1, 0)
    talk.until_met()
    talk.drain()
    assert talk.gateway.session is not None
    check = talk.gateway.session.check
    whole, damaged, behind = (Data(number, 0, b"say").to_bytes(check) for number in range(3))
    for frame in (whole, damaged, behind):
        talk.tap.feed("down", frame)
    talk.tap.arrived("down", whole + damaged.replace(b"say", b"sax") + behind)
    for acknowledged in (Ack(0), Ack(1)):
        talk.tap.feed("up", acknowledged.to_bytes(check))
    assert "unarrived" not in [told["event"] for told in talk.told]
    for _ in range(2):  # it is reported once
        talk.tap.feed("up", answer.to_bytes(check))
    told = [told for told in talk.told if told["event"] == "unarrived"]
    assert told == [{"event": "unarrived", "direction": "down", "frames": 2}]


def test_a_seed_that_comes_again_begins_a_session_and_a_welcome_that_is_repeated_does_not() -> None:
    told: Told = []
    tap = Tap(told.append)
    first, second = (Welcome(1, 0, 1, handshake, 7, 240, 3) for handshake in (1, 2))
    for welcome in (first, first, second, first):
        tap.feed("down", write_handshake(welcome))
    assert [
        tuple(one[name] for name in SEED_INPUTS) for one in told if one["event"] == "welcome"
    ] == [
        (1, 0, 0, 0x10001),
        (1, 0, 0, 0x10002),
        (1, 0, 0, 0x10001),
    ]
