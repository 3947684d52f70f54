"""Reading along a wire: what both ends send again is counted as they count it themselves, and what
they say to each other is told.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.links.frames import Data
from gateway.links.handshake import Greeter
from gateway.links.roles import DeviceLink, GatewayLink
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connect, Pubcomp, Publish, Pubrel, Version
from hil.wire.tap import Tap

STEP = 0.02  # s

Told = list[dict[str, Any]]


class Talk:
    """A device and a gateway at the two ends of a line that loses pieces, and a tap on it. Time is
    a number.
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
                    receiver.receive(piece, self.now)

    def until_met(self) -> None:
        while self.device.session is None or self.gateway.session is None:
            self.step()


@given(seed=st.integers(0, 2**32), loss=st.floats(0, 0.4))
def test_frames_sent_again_are_counted_as_the_ends_count_them(seed: int, loss: float) -> None:
    talk = Talk(seed, loss)
    for number in range(120):
        for end in (talk.device, talk.gateway):
            if end.session is not None and number % 3 == 0:
                end.write(end.session, bytes([number]) * 30, talk.now)
        talk.step()
    again = {direction: counts["frames_again"] for direction, counts in talk.tap.counts.items()}
    assert again == {
        "up": talk.device.statistics.retransmissions,
        "down": talk.gateway.statistics.retransmissions,
    }


def test_what_the_ends_say_is_told_and_publications_with_dup_are_counted() -> None:
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
            {"event": "welcome", "incarnation": 77},
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


def test_what_nobody_read_is_no_repetition_and_the_packets_after_it_are_not_made_up() -> None:
    talk = Talk(1, 0)
    talk.until_met()
    assert talk.device.session is not None
    seed = talk.device.session.seed
    talk.tap.feed("up", Data(0, 0, encode(Connect("sensor-1"), Version.V5)).to_bytes(seed))
    # frame 1, with the first byte of it, was not read
    halves = encode(Publish("t", b"x", 2, 9), Version.V5)
    talk.tap.feed(
        "up",
        Data(2, 0, halves[1:]).to_bytes(seed)
        + Data(3, 0, halves).to_bytes(seed)
        + Data(2, 0, halves[1:]).to_bytes(seed),
    )
    assert talk.tap.counts["up"] == {
        "frames": 4,
        "frames_again": 1,
        "publishes": 0,
        "publishes_again": 0,
    }


@pytest.mark.parametrize(
    "packets", [b"\x00\x00", encode(Connect("a"), Version.V5) * 2, b"\xf0\xff\xff\xff\x7f"]
)
def test_what_is_no_mqtt_is_counted_as_frames_only(packets: bytes) -> None:
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


@given(st.lists(st.tuples(st.sampled_from(("up", "down")), st.binary(max_size=60)), max_size=20))
def test_any_bytes_are_read_along(pieces: list[tuple[str, bytes]]) -> None:
    tap = Tap()
    for direction, piece in pieces:
        tap.feed(direction, piece + b"\0")
