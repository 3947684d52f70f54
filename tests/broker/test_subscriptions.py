"""SUBSCRIBE and UNSUBSCRIBE: granted QoS, matches, and the number of deliveries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import DeliverySection
from gateway.mqtt.packets import (
    Connack,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from gateway.mqtt.topics import topic_filter_problem, topic_matches
from tests.broker.harness import World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
VERSIONS = pytest.mark.parametrize("version", [V4, V5])


@pytest.mark.mqtt(
    *(
        "MQTT-3.8.4-1",
        "MQTT-3.8.4-2",
        "MQTT-3.8.4-5",
        "MQTT-3.8.4-6",
        "MQTT-3.8.4-7",
        "MQTT-3.9.3-1",
        "MQTT-2.2.1-6",
    ),
    *(
        "311:MQTT-3.8.4-1",
        "311:MQTT-3.8.4-2",
        "311:MQTT-3.8.4-4",
        "311:MQTT-3.8.4-5",
        "311:MQTT-3.9.3-1",
        "311:MQTT-2.3.1-7",
    ),
)
@VERSIONS
def test_suback_says_for_each_filter_in_order_what_was_granted(version: Version) -> None:
    client = World(subscriptions=3).accepted("c", version=version)
    wanted = [
        Subscription("a", 2),
        Subscription("b", 0),
        Subscription("a", 1),
        Subscription("c/#", 1),
        Subscription("one/too/many", 1),
    ]
    client.send(Subscribe(77, wanted))
    failure = R.QUOTA_EXCEEDED if version == V5 else R.UNSPECIFIED_ERROR
    assert client.take(Suback) == Suback(
        77, [R.GRANTED_QOS_2, R.GRANTED_QOS_0, R.GRANTED_QOS_1, R.GRANTED_QOS_1, failure]
    )


@pytest.mark.mqtt(
    *(
        "MQTT-3.10.4-1",
        "MQTT-3.10.4-2",
        "MQTT-3.10.4-4",
        "MQTT-3.10.4-5",
        "MQTT-3.10.4-6",
        "MQTT-3.11.3-1",
        "MQTT-2.2.1-6",
    ),
    *(
        "311:MQTT-3.10.4-1",
        "311:MQTT-3.10.4-2",
        "311:MQTT-3.10.4-4",
        "311:MQTT-3.10.4-5",
        "311:MQTT-3.10.4-6",
    ),
)
@VERSIONS
def test_unsuback_answers_every_filter_and_only_equal_ones_end(version: Version) -> None:
    world = World()
    client = world.accepted("c", version=version)
    client.subscribe("a/b", "a/+", "a/B")
    client.send(Unsubscribe(78, ["a/b", "a/#", "a/+"]))
    reasons = [R.SUCCESS, R.NO_SUBSCRIPTION_EXISTED, R.SUCCESS] if version == V5 else []
    assert client.take(Unsuback) == Unsuback(78, reasons)
    publisher = world.accepted()
    for topic in ("a/b", "a/B"):
        publisher.publish(topic, topic)
    assert client.payloads == [b"a/B"]


@pytest.mark.mqtt("MQTT-3.10.4-3", "311:MQTT-3.10.4-3")
@VERSIONS
def test_deliveries_that_have_begun_are_completed_after_unsubscribe(version: Version) -> None:
    world = World()
    client = world.accepted("c", version=version)
    client.subscribe("t")
    world.accepted(answers=True).publish("t", "x", qos=2)
    client.send(Unsubscribe(2, ["t"]))
    client.take(Publish)
    client.take(Unsuback)
    client.send(Pubrec(1))
    assert client.take(Pubrel) == Pubrel(1)


@pytest.mark.mqtt("MQTT-3.8.4-3", "MQTT-3.8.4-4", "311:MQTT-3.8.4-3")
@VERSIONS
@pytest.mark.parametrize("power_cut", [False, True])
def test_the_same_filter_again_replaces_the_subscription(version: Version, power_cut: bool) -> None:
    world = World()
    options = {
        "version": version,
        "clean": False,
        "properties": {P.SESSION_EXPIRY_INTERVAL: 99} if version == V5 else None,
    }
    client = world.accepted("c", **options)
    world.accepted().publish("t", "kept", retain=True)
    for qos in (2, 1):
        client.subscribe("t", qos=qos)
        assert client.take(Publish).payload == b"kept"
    if power_cut:
        world.power_cut()
        client = world.accepted("c", **options)
    world.accepted(answers=True).publish("t", "x", qos=2)
    assert client.take(Publish) == Publish("t", b"x", 1, 1)
    assert client.received == []


@pytest.mark.mqtt(
    "MQTT-3.3.4-2", "MQTT-3.3.4-3", "MQTT-3.3.4-4", "MQTT-3.3.4-5", "311:MQTT-3.3.5-1"
)
def test_overlapping_subscriptions_give_one_copy_at_the_highest_qos_with_all_identifiers() -> None:
    world = World()
    client = world.accepted("c")
    client.subscribe("a/#", qos=0, subscription_identifier=[7])
    client.subscribe("a/+", qos=2, subscription_identifier=[200_000])
    client.subscribe("a/b", qos=1)
    client.subscribe("c", qos=2, subscription_identifier=[9])
    world.accepted(answers=True).publish("a/b", "x", qos=2)
    packet = client.take(Publish)
    assert packet.qos == 2
    assert sorted(packet.properties[P.SUBSCRIPTION_IDENTIFIER]) == [7, 200_000]
    assert client.received == []


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_queued_message_keeps_the_identifier_of_its_subscription(power_cut: bool) -> None:
    world = World()
    client = world.durable("c")
    client.subscribe("t", subscription_identifier=[5])
    client.drop()
    world.accepted(answers=True).publish("t", "x", qos=2)
    if power_cut:
        world.power_cut()
    client = world.durable("c")
    assert client.take(Publish).properties == {P.SUBSCRIPTION_IDENTIFIER: [5]}
    world.accepted(answers=True).publish("t", "y", qos=2)
    assert client.take(Publish).properties == {P.SUBSCRIPTION_IDENTIFIER: [5]}


@pytest.mark.mqtt("MQTT-3.8.3-3")
@pytest.mark.parametrize("power_cut", [False, True])
def test_no_local_keeps_a_clients_own_messages_away(power_cut: bool) -> None:
    world = World()
    client = world.durable("c")
    client.subscribe(Subscription("t/#", 2, no_local=True), Subscription("t/echo", 0))
    if power_cut:
        world.power_cut()
        client = world.durable("c")
    client.publish("t/x", "own")
    client.publish("t/echo", "echo", qos=1)
    world.accepted().publish("t/x", "foreign")
    assert [(packet.payload, packet.qos) for packet in client.take_all(Publish)] == [
        (b"echo", 0),
        (b"foreign", 0),
    ]


def test_each_request_of_a_durable_client_is_on_disk_before_the_answer() -> None:
    world = World()
    client = world.durable("c")
    world.slow_disk = True
    client.send(Subscribe(1, [Subscription("t", 1)]))
    assert client.received == []
    world.commit()
    client.take(Suback)
    assert world.rows("SELECT filter, options FROM subscription") == [("t", 1)]
    client.send(Unsubscribe(2, ["t"]))
    assert client.received == []
    world.commit()
    client.take(Unsuback)
    assert world.rows("SELECT * FROM subscription") == []


LEVELS = st.sampled_from(["a", "b", "", "+", "#", "$x", "ü"])
FILTERS = (
    st.lists(LEVELS, min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda text: topic_filter_problem(text) is None)
)
NAMES = (
    st.lists(st.sampled_from(["a", "b", "", "$x", "ü"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(bool)
)


@pytest.mark.mqtt("MQTT-4.7.2-1", "MQTT-4.7.3-4")
@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=12), NAMES)
def test_the_tree_finds_what_the_rules_of_matching_say(
    steps: list[tuple[str, bool]], name: str
) -> None:
    world = World()
    clients = {}
    for topic_filter, keep in steps:
        client = clients.get(topic_filter) or world.accepted()
        client.subscribe(topic_filter)
        clients[topic_filter] = client
        if not keep:
            client.send(Unsubscribe(2, [topic_filter]))
            del clients[topic_filter]
    for client in clients.values():
        client.take_all()
    world.accepted().publish(name, "x")
    assert {topic_filter for topic_filter, client in clients.items() if client.payloads} == {
        topic_filter for topic_filter in clients if topic_matches(topic_filter, name)
    }


# -- shared subscriptions


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("run", [False, True])
def test_members_of_a_shared_subscription_take_turns(qos: int, run: bool) -> None:
    world = World()
    members = [world.accepted(answers=True) for _ in range(3)]
    for member in members:
        member.subscribe("$share/g/t")
    alone = world.accepted(answers=True)
    alone.subscribe("t", "$share/other/t")
    publisher = world.accepted(answers=True)
    publisher.publish("t", "00", qos)
    packets = [Publish("t", b"%02d" % number, qos, number if qos else 0) for number in range(1, 30)]
    publisher.send(*packets) if run else [publisher.send(packet) for packet in packets]
    assert [len(member.payloads) for member in members] == [10, 10, 10]
    assert sorted(payload for member in members for payload in member.payloads) == [
        b"%02d" % number for number in range(30)
    ]
    assert len(alone.payloads) == 60


def test_shared_subscription_skips_absent_members_while_one_is_present() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.durable(name, answers=True).subscribe("$share/g/t")
    for name in ("a", "b"):
        world.clients[world.broker.sessions[name].connection].drop()
    publisher = world.accepted(answers=True)
    for number in range(6):
        publisher.publish("t", str(number), qos=2)
    present = world.clients[world.broker.sessions["c"].connection]
    assert len(present.payloads) == 6
    present.drop()
    publisher.publish("t", "6", qos=2)
    assert sum(len(world.durable(name, answers=True).payloads) for name in ("a", "b", "c")) == 1


@pytest.mark.mqtt("MQTT-4.8.2-3")
def test_each_member_of_a_shared_subscription_keeps_its_qos() -> None:
    world = World()
    members = [world.accepted() for _ in range(3)]
    for qos, member in enumerate(members):
        member.subscribe("$share/g/t", qos=qos)
    publisher = world.accepted(answers=True)
    for _ in range(3):
        publisher.publish("t", "x", qos=2)
    assert sorted(member.take(Publish).qos for member in members) == [0, 1, 2]


@pytest.mark.mqtt("MQTT-4.8.2-4", "MQTT-4.8.2-5")
def test_interrupted_shared_qos_2_delivery_is_completed_with_the_same_client_only() -> None:
    world = World()
    first = world.durable("first")
    first.subscribe("$share/g/t")
    world.accepted(answers=True).publish("t", "x", qos=2)
    second = world.durable("second", answers=True)
    second.subscribe("$share/g/t")
    first.drop()
    assert second.payloads == []
    assert world.durable("first").take(Publish).dup
    world.clients[world.broker.sessions["first"].connection].disconnect(
        R.NORMAL_DISCONNECTION, {P.SESSION_EXPIRY_INTERVAL: 0}
    )
    assert second.payloads == []


def test_unsent_messages_of_an_ended_member_go_to_the_others() -> None:
    world = World()
    first = world.durable("first", properties={P.RECEIVE_MAXIMUM: 1})
    first.subscribe("$share/g/t")
    publisher = world.accepted(answers=True)
    for number in range(5):
        publisher.publish("t", str(number), qos=2)
    second = world.durable("second", answers=True)
    second.subscribe("$share/g/t")
    assert second.payloads == []
    first.disconnect(R.NORMAL_DISCONNECTION, {P.SESSION_EXPIRY_INTERVAL: 0})
    assert second.payloads == [b"1", b"2", b"3", b"4"], "0 was sent to the first one already"


@pytest.mark.mqtt("MQTT-4.8.2-6")
def test_refused_shared_message_goes_to_no_other_client() -> None:
    world = World()
    members = [world.durable(name) for name in ("a", "b")]
    for member in members:
        member.subscribe("$share/g/t")
    publisher = world.accepted(answers=True)
    publisher.publish("t", "x", qos=2)
    taker = next(member for member in members if member.received)
    taker.take(Publish)
    taker.send(Pubrec(1, R.QUOTA_EXCEEDED))
    publisher.publish("t", "y", qos=1)
    other = next(member for member in members if member is not taker)
    assert other.payloads == [b"y"]
    other.send(Puback(1, R.QUOTA_EXCEEDED))
    assert [member.take_all(Publish) for member in members].count([]) == 1


@pytest.mark.mqtt("MQTT-3.3.4-2", "MQTT-3.3.4-5")
def test_overlapping_subscriptions_may_give_a_copy_each_with_its_own_qos_and_identifier() -> None:
    world = World(overlapping="each")
    client = world.accepted("c", answers=True)
    client.subscribe("a/#", qos=0, subscription_identifier=[7])
    client.subscribe("a/+", qos=2, subscription_identifier=[200_000])
    client.subscribe(Subscription("a/b", 1, no_local=True))
    world.accepted(answers=True).publish("a/b", "x", qos=2)
    packets = client.take_all(Publish)
    assert {
        item.qos: (item.properties or {}).get(P.SUBSCRIPTION_IDENTIFIER) for item in packets
    } == {
        0: [7],
        1: None,
        2: [200_000],
    }
    client.publish("a/b", "mine")
    assert len(client.take_all(Publish)) == 2
    once = world.config.model_copy(update={"delivery": DeliverySection()})
    world.broker.reconfigure(once)
    world.accepted(answers=True).publish("a/b", "y", qos=2)
    assert len(client.take_all(Publish)) == 1


@pytest.mark.parametrize("version", [V3, V4])
def test_a_bridge_gets_nothing_back_and_retain_as_it_was_published(version: Version) -> None:
    world = World()
    bridge = world.accepted("b", version=version, bridge=True, answers=True)
    plain = world.accepted("p", version=version, answers=True)
    for client in (bridge, plain):
        client.send(Subscribe(1, [Subscription("t/#", 1)]))
        client.take_all(Suback)
    bridge.publish("t/mine", "x")
    plain.publish("t/kept", "x", retain=True)
    plain.publish("t/other", "x")
    came = [(item.topic, item.retain) for item in bridge.take_all(Publish)]
    assert came == [("t/kept", True), ("t/other", False)]
    assert [item.retain for item in plain.take_all(Publish)] == [False] * 3


@pytest.mark.parametrize("version", [V3, V4, V5])
@pytest.mark.parametrize("qos", [0, 1])
def test_no_client_publishes_to_a_shared_subscription(version: Version, qos: int) -> None:
    """`$share/…` is the form of a shared subscription's filter (section 4.8.2), and not a valid
    topic name.
    """
    world = World()
    watching = world.accepted("w")
    watching.subscribe("$share/g/t", qos=0)
    client = world.accepted("c", version=version)
    client.publish("$share/g/t", "x", qos)
    assert watching.payloads == []
    assert world.broker.statistics.refusals == {("publish", R.TOPIC_NAME_INVALID): 1}
    assert client.closed == (qos > 0 and version < V5)
    assert world.connect("d", will=Will("$share/g/t")).take(Connack).reason == R.TOPIC_NAME_INVALID


def test_the_answer_to_an_unsubscribe_of_nothing_waits_for_no_disk() -> None:
    """UNSUBACK leaves at once, even if a later packet in the same bytes closes the client."""
    world = World()
    client = world.accepted("c", version=Version.V3_1_1, clean=False)
    world.slow_disk = True
    unsubscribe = b"\xa2\x07\x00\x07\x00\x03a/#"
    client.send_bytes(unsubscribe + unsubscribe[:1] + b"\x00")
    assert client.closed
    assert client.raw.endswith(b"\xb0\x02\x00\x07")
