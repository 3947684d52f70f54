"""Goodput at 115200 baud: the share of the line's 11,520 bytes a second that carries bytes of
MQTT.
"""

from random import Random

import pytest

from tests.links.twin import CDevice
from tests.links.world import KEY, Ledger, World

BAUD = 115_200
LATENCY = 0.001
"""Smallest delay that USB adds in each direction, in seconds."""

SECONDS = 3.0
_FRAME = 69
"""Size of a full frame of a board on the line, in bytes."""


def play(latency: float, key: bytes | None) -> World:
    """Return a world whose board is in session. latency: delay of the line, in seconds."""

    def board(
        ledger: Ledger,
        random: Random,
        boot: int,
        incarnation: int,
        baud: int | None,
        key: bytes | None,
    ) -> CDevice:
        return CDevice(ledger, random, boot, incarnation, baud, key, buffers=(56, 2, 128))

    world = World(Random(1), board, baud=BAUD, latency=latency, key=key)
    world.advance(0.5)
    return world


def goodput(*, up: bool, packet: int, lost: float = 0.0, key: bytes | None = KEY) -> float:
    """Keep one direction busy with packets of this size, and return the goodput. lost: share of
    full frames that are damaged.
    """
    world = play(LATENCY, key)
    world.set_noise(lost / _FRAME)
    assert world.device.known is not None
    stream = (world.ledger.up if up else world.ledger.down)[world.device.known]
    sender = world.device if up else world.gateway
    start = world.now
    while world.now < start + SECONDS:
        while len(stream.sent) - len(stream.received) < 1000:
            sender.write(world.random.randbytes(packet), world.now)
        world.advance(0.002)
    return len(stream.received) * 10 / BAUD / SECONDS


@pytest.mark.few(3)
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("packet", [37, 400], ids=["32-byte payloads at QoS 0", "long packets"])
@pytest.mark.parametrize("key", [KEY, None], ids=["with a key", "without"])
def test_goodput_on_a_clean_line(up: bool, packet: int, key: bytes | None) -> None:
    assert goodput(up=up, packet=packet, key=key) >= 0.88


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_goodput_when_one_frame_in_a_hundred_is_lost(up: bool) -> None:
    assert goodput(up=up, packet=37, lost=0.01) >= 0.6


def test_qos_2_exchanges_of_20_bytes_with_a_key() -> None:
    """One exchange runs at a time, the line has no delay, and the gateway answers at once. The
    frames of PUBREC and PUBCOMP also carry the link's acknowledgements of PUBLISH and PUBREL.
    """
    world, done = play(0.0, KEY), 0
    assert world.device.known is not None
    up, down = world.ledger.up[world.device.known], world.ledger.down[world.device.known]
    steps = ((world.device, up, 30), (world.gateway, down, 4), (world.device, up, 4))
    start = world.now
    while world.now < start + SECONDS:
        for sender, stream, size in (*steps, (world.gateway, down, 4)):
            wanted = len(stream.received) + size
            sender.write(bytes(size), world.now)
            while len(stream.received) < wanted:
                world.advance(0.0001)
        done += 1
    assert done / SECONDS >= 125
