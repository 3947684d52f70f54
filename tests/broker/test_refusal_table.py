"""Each reason to refuse a publication, each kind of client, and the reaction that the client sees,
compared with the table in the broker's README.

A client that does not read reason codes loses its connection only if the cause of the refusal
passes by itself. A client before MQTT 5 loses its connection in any case, because no code exists
for the refusal.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.access.rules import Policy
from gateway.broker.lack import Bound
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Disconnect, Pingreq, Pingresp, Puback, Publish, Pubrec, Version
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import Anonymous, Client, World
from tests.broker.test_pauses import (
    FILLED,
    FOR_GOOD,
    LARGE,
    READS,
    STAYS_FULL,
    V4,
    V5,
    Full,
    kind,
)

PASSES = {"spool", "second_disk", "disk", "memory", "queue"}
"""Names of the bounds that pass by themselves: the uplink lands, a disk or a member comes back, a
subscriber reads.
"""
OF_MEMORY = {"identifiers"}
"""Names of bounds that guard memory, although they are not called `memory`."""

Case = tuple[World, Publish, R, bool]
"""A world, a publication that is refused in it, the reason code, and whether the reason passes by
itself.
"""


def _full(make: Callable[[], Full], passes: bool) -> Callable[[], Case]:
    def case() -> Case:
        full = make()
        packet = Publish(full.topic, LARGE, 1, 7, full.retain)
        return full.world, packet, R.QUOTA_EXCEEDED, passes

    return case


def _for_good(make: Callable[[], tuple[World, Publish]], reason: R) -> Callable[[], Case]:
    return lambda: (*make(), reason, False)


CASES = {name: _full(make, True) for name, make in FILLED.items()}
CASES |= {name: _full(make, False) for name, make in STAYS_FULL.items()}
CASES |= {f"for good: {name}": _for_good(*case) for name, case in FOR_GOOD.items()}


def test_the_bounds_that_pass_are_those_whose_room_comes_back_by_itself() -> None:
    assert {bound.value for bound in Bound if bound.passes} == PASSES | OF_MEMORY


def test_the_table_of_the_readme_says_what_the_code_does() -> None:
    text = (Path(__file__).parents[2] / "gateway" / "broker" / "README.md").read_text()
    told = dict(re.findall(r"^\| .* \(`(\w+)`\) \| (for now|for good) \|", text, re.M))
    assert told == {bound.value: "for now" if bound.passes else "for good" for bound in Bound}


def _client(world: World, version: Version, reads: str) -> Client:
    if reads == "listener":
        policy = Policy(Anonymous(), reads_reasons=True)
        return world.accepted("c", version=version, clean=False, policy=policy)
    properties = READS if reads == "property" and version == V5 else None
    return world.accepted("c", version=version, clean=False, properties=properties)


@pytest.mark.parametrize("reads", ["", "property", "listener"])
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())
def test_a_refusal_is_reported_as_the_table_says(
    make: Callable[[], Case], qos: int, version: Version, reads: str
) -> None:
    world, packet, reason, passes = make()
    packet.qos = qos
    client = _client(world, version, reads)
    client.send(packet, Pingreq())
    assert world.broker.statistics.refusals == {("publish", reason): 1}
    if version == V4:
        assert (client.received, client.closed) == ([], True)
    elif passes and not reads:
        assert client.take(Disconnect).reason == R.QUOTA_EXCEEDED
        assert (client.received, client.closed) == ([], True)
    else:
        assert client.take_all() == [kind(qos)(7, reason), Pingresp()]
        assert not client.closed
        assert world.broker.statistics.pauses == {}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())
def test_no_refusal_ends_in_a_storm(make: Callable[[], Case]) -> None:
    """For two minutes, a client of MQTT 3.1.1 connects again as soon as a refusal has ended its
    connection.
    """
    world, packet, _, _ = make()
    connections, begun = 0, world.broker.now
    while world.broker.now - begun < 120:
        client = _client(world, V4, "")
        connections += 1
        client.send(packet)
        _wait_for_the_end(world, client)
    assert connections <= 12
    (pauses,) = world.broker.statistics.pauses.values()
    assert pauses == connections


def _wait_for_the_end(world: World, client: Client, more: bytes = b"") -> None:
    """Wait until the connection has ended. more: bytes that the client sends each second
    meanwhile.
    """
    for _ in range(60):
        if client.closed:
            return
        if more:
            client.send_bytes(more)
        world.sleep(1)
    raise AssertionError("the connection goes on")


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("version", [V4, V5])
def test_a_packet_that_is_too_large_does_not_end_in_a_storm(version: Version, named: bool) -> None:
    """Clients that ignore Maximum Packet Size, or do not get it, send the packet again and again.
    The broker makes these clients wait, so a client connects at most 12 times in two minutes.
    """
    world = World(packet_bytes=1000, reads_reasons=False)
    large = encode(Publish("t", bytes(2000), 1, 9), version)
    taken = encode(Publish("t", b"x", 1, 8), version)
    connections, begun = 0, world.broker.now
    while world.broker.now - begun < 120:
        client = world.accepted("c" if named else "", version=version)
        connections += 1
        client.send_bytes(large if connections % 2 else taken + large)
        _wait_for_the_end(world, client, large)
        answers = [packet for packet in client.received if not isinstance(packet, Puback)]
        ends = [packet.reason for packet in answers if isinstance(packet, Disconnect)]
        assert ends == ([R.PACKET_TOO_LARGE] if version == V5 else [])
        assert len(answers) == len(ends)
    assert connections <= 12
    assert world.broker.statistics.pauses == {"for_good": connections}
    assert world.broker.partial == world.broker.put_off == 0


def test_publications_before_an_oversized_packet_are_acknowledged() -> None:
    world = World(packet_bytes=1000, reads_reasons=False)
    client = world.accepted("c", clean=False)
    world.slow_disk = True
    client.send(Publish("spool/t", b"x", 2, 1))
    client.send_bytes(encode(Publish("t", bytes(2000), 1, 9), V5))
    client.send_bytes(bytes(100))
    assert (client.received, client.closed) == ([], False)
    world.slow_disk = False
    world.commit()
    assert client.take(Pubrec) == Pubrec(1)
    assert client.take(Disconnect).reason == R.PACKET_TOO_LARGE
    assert client.closed
