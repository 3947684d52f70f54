"""The cost of matching a topic, and its correct routes after any earlier subscriptions."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.topics import topic_matches
from tests.broker.harness import World

LEVELS = st.sampled_from(["a", "b", "+", ""])
NAMES = st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=6).map("/".join)
FILTERS = st.tuples(
    st.lists(LEVELS, min_size=0, max_size=6), st.sampled_from([[], ["#"], ["a"]])
).map(lambda parts: "/".join(parts[0] + parts[1]) or "#")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), NAMES.filter(bool)),
            st.tuples(st.just("subscribe"), FILTERS),
            st.tuples(st.just("unsubscribe"), FILTERS),
        ),
        max_size=30,
    )
)
def test_a_topic_has_the_routes_of_the_filters_that_match_it_at_that_time(
    steps: list[tuple[str, str]],
) -> None:
    world = World()
    client, publisher = world.accepted("c"), world.accepted("p")
    subscribed: set[str] = set()
    for what, text in steps:
        match what:
            case "publish":
                publisher.publish(text, "x")
                came = bool(client.payloads)
                client.take_all()
                assert came == any(topic_matches(item, text) for item in subscribed)
            case "subscribe":
                client.subscribe(text, qos=0)
                subscribed.add(text)
            case _:
                client.unsubscribe(text)
                subscribed.discard(text)


def test_a_subscription_elsewhere_leaves_the_routes_of_a_topic_as_they_are() -> None:
    world = World()
    world.accepted().subscribe("sensors/#")
    publisher = world.accepted()
    publisher.publish("sensors/1/t", "x")
    topic = world.broker.router.topic("sensors/1/t")
    other = world.accepted()
    for topic_filter in ("commands/#", "sensors/2/#", "+/2/t", "sensors/1", "$share/g/sensors/2/t"):
        other.subscribe(topic_filter)
        assert not topic.stale, topic_filter
    for topic_filter in ("#", "sensors/+/t", "sensors/1/t/#", "$share/g/sensors/1/t"):
        publisher.publish("sensors/1/t", "x")
        assert not topic.stale
        other.subscribe(topic_filter)
        assert topic.stale, topic_filter


def test_filters_with_many_levels_cannot_make_a_match_slow() -> None:
    """Each filter would match the topic, and by another path through the tree. The bound on levels
    refuses most of the filters.
    """
    world = World(subscriptions=1000, subscribe_bytes=1_000_000)
    name = "/".join("x" * 120)
    refused = 0
    for number in range(5):
        client = world.accepted(f"c{number}")
        filters = []
        for way in range(1000):
            bits = format(number * 1000 + way, "016b")
            levels = ["+" if bit == "1" else "x" for bit in bits] + ["x"] * 103 + ["+"]
            filters.append("/".join(levels))
        refused += sum(reason >= 0x80 for reason in client.subscribe(*filters, qos=0).reasons)
    assert refused > 4000, "their levels count against a bound"
    publisher = world.accepted()
    begin = time.process_time()
    publisher.publish(name, "x")
    assert time.process_time() - begin < 0.3
    assert world.accepted().subscribe("+/x/+/z/#", "x/+").reasons == [2, 2], "others go on"


def test_cached_routes_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.broker.router._KNOWN_ROUTES", 100)
    world = World()
    for number in range(20):
        world.accepted(f"s{number}").subscribe("#")
    publisher = world.accepted("p")
    long = [f"{number}{'x' * 1000}" for number in range(10)]
    for name in [str(number) for number in range(50)] + long:
        publisher.publish(name, name, properties={P.TOPIC_ALIAS: 1})
    aliases = {P.TOPIC_ALIAS: 2}
    publisher.publish(long[0], "x", properties=aliases)
    publisher.publish("short", "x")
    publisher.publish("", "y", properties=aliases)
    topics = [*world.broker.router.topics.values(), *publisher.connection.aliases.values()]
    assert sum(len(topic.routes) for topic in topics) <= 100 + 20
    subscriber = next(item for item in world.clients.values() if item.connection.client == "s3")
    assert len(subscriber.payloads) == 63
    assert subscriber.payloads[-3:] == [b"x", b"x", b"y"]
