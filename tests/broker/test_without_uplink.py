"""A gateway without `[uplink]` keeps nothing for an uplink. Every other promise holds."""

import pytest

from gateway.access.peer import DeviceIdentity
from gateway.mqtt.packets import (
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import UPLINK, Client, World

TOPIC = "spool/t"
IDENTITY = {PropertyId.USER_PROPERTY: [("incarnation", "7"), ("seq", "9")]}


def spooled(world: World) -> list[bytes]:
    return [row[0] for row in world.rows("SELECT payload FROM spool ORDER BY id")]


def board(world: World, next_sequence: int = 1, clean: bool = False) -> Client:
    identity = DeviceIdentity("b", 7, next_sequence, proved=True)
    return world.durable("b", device=identity, clean=clean)


@pytest.fixture
def world() -> World:
    return World(uplink=False)


@pytest.mark.parametrize("version", Version)
def test_published_messages_are_not_spooled(world: World, version: Version) -> None:
    subscriber = world.accepted("s")
    subscriber.subscribe("#", qos=0)
    properties = IDENTITY if version is Version.V5 else None
    client = world.accepted("c", version=version, will=Will(TOPIC, b"will"))
    for qos in range(3):
        client.send(Publish(TOPIC, b"%d" % qos, qos, qos and 1, properties=properties))
    client.send(Publish(TOPIC, b"kept", 1, 2, retain=True))
    client.send(Publish(TOPIC, b"", 1, 3, retain=True))
    assert {packet.reason for packet in client.take_all()} == {R.SUCCESS}
    board(world).send(Publish(TOPIC, b"of a board", 2, 1))
    client.drop()
    world.sleep(1)
    assert subscriber.payloads == [b"0", b"1", b"2", b"kept", b"", b"of a board", b"will"]
    assert spooled(world) == []
    assert (world.broker.spool.count, world.broker.spool.size) == (0, 0)


def test_full_spool_of_an_earlier_version_refuses_nothing_and_stays() -> None:
    world = World(spool_bytes=200)
    client = world.accepted("c")
    client.send(Publish(TOPIC, bytes(60), 1, 1), Publish(TOPIC, bytes(60), 1, 2))
    assert [packet.reason for packet in client.take_all()] == [R.SUCCESS, R.QUOTA_EXCEEDED]
    world.config = world.config.model_copy(update={"uplink": None})
    world.power_cut()
    subscriber = world.accepted("s")
    subscriber.subscribe("#", qos=0)
    client = world.accepted("c")
    for qos in range(3):
        client.send(Publish(TOPIC, b"%d" % qos, qos, qos and qos + 2))
    assert {packet.reason for packet in client.take_all()} == {R.SUCCESS}
    assert subscriber.payloads == [b"0", b"1", b"2"]
    assert (spooled(world), world.broker.spool.count) == ([bytes(60)], 1)


@pytest.mark.parametrize("restart", [False, True])
def test_duplicate_is_recognised_without_a_row_of_the_spool(world: World, restart: bool) -> None:
    world.absent("s", topic="#")
    client = world.durable("c")
    client.send(Publish(TOPIC, b"once", 2, 5))
    assert client.take(Pubrec) == Pubrec(5)
    if restart:
        world.power_cut()
    else:
        client.drop()
    client = world.durable("c")
    client.send(Publish(TOPIC, b"once", 2, 5, dup=True))
    assert client.take(Pubrec) == Pubrec(5)
    client.send(Pubrel(5))
    assert client.take(Pubcomp) == Pubcomp(5)
    assert world.rows("SELECT sum(count) FROM queue") == [(1,)]


def test_pubrec_waits_for_the_commit_of_the_identifier(world: World) -> None:
    client = world.durable("c")
    world.slow_disk = True
    client.send(Publish(TOPIC, b"once", 2, 5))
    assert client.received == []
    world.commit()
    assert client.take(Pubrec) == Pubrec(5)
    world.power_cut()
    world.slow_disk = False
    client = world.durable("c")
    client.send(Pubrel(5))
    assert client.take(Pubcomp) == Pubcomp(5)


def test_pubrec_of_a_board_waits_for_the_commit_of_its_mark(world: World) -> None:
    client = board(world)
    world.slow_disk = True
    client.send(Publish(TOPIC, b"1", 2, 1))
    assert client.received == []
    world.commit()
    assert client.take(Pubrec) == Pubrec(1)


@pytest.mark.parametrize("clean", [False, True])
def test_mark_of_a_board_outlives_a_power_cut_without_the_spool(world: World, clean: bool) -> None:
    world.absent("s", topic="#")
    client = board(world)
    client.send(Publish(TOPIC, b"1", 2, 1))
    assert client.take(Pubrec) == Pubrec(1)
    world.power_cut()
    client = board(world, next_sequence=2, clean=clean)
    client.send(Publish(TOPIC, b"1", 2, 1, dup=True))
    assert client.take(Pubrec) == Pubrec(1)
    client.send(Pubrel(1))
    assert client.take(Pubcomp) == Pubcomp(1)
    assert world.rows("SELECT sum(count) FROM queue") == [(1,)]


def test_uplink_that_comes_and_goes_counts_at_once() -> None:
    world = World(uplink=False)
    client = world.accepted("c")
    for number, uplink in enumerate([None, UPLINK, None, UPLINK], 1):
        world.broker.reconfigure(world.config.model_copy(update={"uplink": uplink}))
        client.send(Publish(TOPIC, b"%d" % number, 1, number))
    assert {packet.reason for packet in client.take_all()} == {R.SUCCESS}
    assert spooled(world) == [b"2", b"4"]
    assert world.rows("SELECT id FROM spool ORDER BY id") == [(1,), (2,)]


def test_figures_of_the_spool_stay_true(world: World) -> None:
    client = world.accepted("c")
    client.subscribe("$SYS/#", qos=0)
    client.send(Publish(TOPIC, b"x", 1, 1))
    world.sleep(20)
    told = {packet.topic: packet.payload for packet in client.take_all(Publish)}
    assert told["$SYS/broker/spool/messages/count"] == b"0"
    assert told["$SYS/broker/spool/messages/bytes"] == b"0"
