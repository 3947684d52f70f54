"""The states of a connection: the packets that each state allows, and the states that can
follow.
"""

import pytest

from gateway.access.rules import Policy
from gateway.broker.session import NEXT, State
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Version
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import World
from tests.broker.test_access import Slow

V5 = Version.V5


def test_every_way_through_the_states() -> None:
    world = World()
    client = world.open(policy=Policy(Slow()))
    connection = client.connection
    assert connection.state is State.NEW
    client.bring(encode(Connect("c", username="u", password=b"right"), V5))
    assert connection.state is State.ASKED
    world.turn()
    assert connection.state is State.OPEN
    client.disconnect()
    assert connection.state is State.CLOSED
    for state in (State.NEW, State.OPEN):
        with pytest.raises(RuntimeError, match="cannot go"):
            connection.become(state)
    assert NEXT.keys() == set(State)


def test_packet_before_connect_closes_the_connection() -> None:
    world = World()
    client = world.open()
    client.send(Pingreq())
    assert (client.closed, client.raw) == (True, b"")


def test_connect_comes_once() -> None:
    client = World().accepted("c")
    client.send(Connect("c"), Pingreq())
    assert client.closed
    assert [packet.reason for packet in client.received] == [R.PROTOCOL_ERROR]


def test_packets_behind_connect_have_the_bounds_of_a_known_client() -> None:
    world = World(connect_bytes=1000)
    client = world.open()
    client.send(Connect("c"), Publish("t", bytes(5000), 1, 1), Pingreq())
    assert [type(packet) for packet in client.received] == [Connack, Puback, Pingresp]
