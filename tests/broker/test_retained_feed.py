"""The broker sends retained messages page by page, whenever there is room for a page, and omits
none.
"""

import tracemalloc

import pytest

from gateway.broker import retained_feed
from gateway.mqtt.packets import Publish, Suback, Subscribe, Subscription
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import World


def retain(world: World, topics: list[str], size: int = 10, qos: int = 0) -> None:
    publisher = world.accepted(answers=True)
    for topic in topics:
        publisher.publish(topic, bytes(size), qos, retain=True)
    publisher.drop()


@pytest.mark.parametrize("filters", [["r/#"] * 20_000, ["#"] * 400, ["r/a", "r/b"] * 5_000])
def test_a_filter_that_is_repeated_brings_its_messages_once(filters: list[str]) -> None:
    world = World()
    retain(world, [f"r/{letter}" for letter in "abcdefgh"], 10_000)
    client = world.accepted(answers=True)
    tracemalloc.start()
    client.send(Subscribe(1, [Subscription(item, 0) for item in filters]))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert client.take(Suback).reasons == [R.GRANTED_QOS_0] * len(filters)
    topics = [packet.topic for packet in client.take_all(Publish)]
    assert len(topics) == len(set(topics)) == (2 if "r/a" in filters else 8)
    assert most < 20_000_000


@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_that_reads_nothing_costs_no_more_than_the_bound_of_its_output(
    qos: int,
) -> None:
    world = World(outgoing_bytes=100_000, queue_messages=10_000)
    retain(world, [f"r/{number}" for number in range(500)], 1_000, qos)
    client = world.accepted(properties={P.RECEIVE_MAXIMUM: 10})
    client.reads = False
    client.send(Subscribe(1, [Subscription(item, qos) for item in ("#", "r/#", "+/+")]))
    connection = world.broker.sessions[client.connection.client].connection
    assert connection is not None
    assert client.unsent + connection.size < 500_000
    assert world.broker.queued < 100_000
    client.reads = client.answers = True
    client.read_on()
    came = [packet.topic for packet in client.take_all(Publish)]
    assert len(came) == 3 * 500
    assert len(set(came)) == 500


@pytest.mark.parametrize("power_cut", [False, True])
def test_retained_messages_that_have_not_come_follow_when_the_client_is_back(
    power_cut: bool,
) -> None:
    world = World(inflight=10)
    topics = [f"r/{number}" for number in range(1_000)]
    retain(world, topics, qos=1)
    client = world.durable("c")
    client.subscribe("r/#", qos=1)
    assert 0 < len(client.payloads) < 1_000
    client.drop()
    if power_cut:
        world.power_cut()
    came = {packet.topic for packet in world.durable("c", answers=True).take_all(Publish)}
    assert came == set(topics)
    world.sleep(1)
    world.power_cut()
    assert world.durable("c", answers=True).take_all(Publish) == [], "they came already"


def test_retained_messages_never_make_the_queue_of_their_subscriber_overflow() -> None:
    world = World(queue_bytes=3_000, queue_messages=5)
    retain(world, [f"r/{number}" for number in range(50)], 1_000, 1)
    client = world.durable("c", answers=True)
    client.subscribe("r/#", qos=1)
    assert len(client.payloads) == 50
    assert not client.closed
    assert world.broker.statistics.overflowed == 0


def test_newest_retained_message_is_sent() -> None:
    world = World(inflight=10)
    topics = [f"r/{number:04}" for number in range(500)]
    retain(world, topics, qos=1)
    client = world.durable("c")
    client.subscribe("r/#", qos=1)
    publisher = world.accepted(answers=True)
    publisher.publish("r/0499", "newer", 1, retain=True)
    publisher.publish("r/0498", "", 1, retain=True)
    client.drop()
    packets = world.durable("c", answers=True).take_all(Publish)
    assert [packet.payload for packet in packets if packet.topic == "r/0499"] == [
        b"newer",
        b"newer",
    ]
    assert [packet.payload for packet in packets if packet.topic == "r/0498"] == [b""]


def test_filters_that_begin_alike_look_at_each_message_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    retain(world, [f"{number}/x/y/z" for number in range(1_000)])
    looked: list[str] = []
    matching = retained_feed._Pass.matching

    def counted(one: retained_feed._Pass, topic: str) -> list[str]:
        looked.append(topic)
        return matching(one, topic)

    monkeypatch.setattr(retained_feed._Pass, "matching", counted)
    client = world.accepted(answers=True)
    filters = ["+/x/+/z", *(f"+/{number}/+/z" for number in range(399))]
    client.send(Subscribe(1, [Subscription(item, 0) for item in filters]))
    assert len(client.payloads) == 1_000
    assert len(looked) == len(set(looked)) == 1_000
