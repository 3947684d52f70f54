"""Limits: the broker refuses the excess, counts it, tells the client in the client's MQTT version,
and logs it once.
"""

import logging
from typing import Literal

import pytest

from gateway.access.logins import MOST_OF_ONE
from gateway.access.rules import Policy, Refusal, SlowCheck
from gateway.broker.connection import Connection
from gateway.config import AclSection, QueueSection
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from gateway.system.usage import origin
from tests.broker.harness import FOREVER, Anonymous, Client, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5


class Slow(Anonymous):
    """Access rules that accept every client, but decide in another thread."""

    def refuses_connect(
        self, connection: Connection, packet: Connect
    ) -> Refusal | SlowCheck | None:
        return SlowCheck("u", lambda: None)


# -- connections


def test_connection_without_connect_is_closed_in_time_and_blocks_no_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(connections=5, connect_timeout_s=10)
    idle = [world.open() for _ in range(5)]
    world.sleep(5)
    client = world.accepted("c")
    assert [item.closed for item in idle] == [True, False, False, False, False], (
        "the oldest makes room"
    )
    late = [world.open() for _ in range(2)]
    world.accepted("d")
    world.sleep(6)
    assert all(item.closed for item in idle)
    assert not any(item.closed for item in (client, *late))
    assert world.broker.statistics.disconnects == {R.SERVER_BUSY: 3, R.KEEP_ALIVE_TIMEOUT: 2}
    assert [record.message for record in caplog.records] == [
        "memory: too many connections have sent no CONNECT (limits.connections) (0x89)",
        "memory: no CONNECT arrived in time (limits.connect_timeout_s) (0x8D)",
    ]


def test_a_connect_that_comes_byte_by_byte_is_taken_if_it_is_whole_in_time() -> None:
    world = World(connect_timeout_s=10)
    fast, slow = world.open(), world.open()
    for byte in encode(Connect("c" * 20), V5):
        world.sleep(0.25)
        fast.send_bytes(bytes([byte]))
    assert fast.take(Connack).reason == R.SUCCESS
    for byte in encode(Connect("d" * 20), V5):
        world.sleep(0.25)
        slow.send_bytes(bytes([byte]))
    assert slow.closed


def test_client_that_returns_to_its_session_needs_no_second_place() -> None:
    world = World(connections=2)
    first = world.accepted("a")
    world.accepted("b")
    assert world.connect("c").take(Connack).reason == R.QUOTA_EXCEEDED
    world.accepted("a")
    assert first.closed


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("192.0.2.7:1234", "192.0.2.7"),
        ("[2001:db8:1:2:3::4]:1234", "2001:db8:1:2::"),
        ("[2001:db8:1:2:ffff::]:1", "2001:db8:1:2::"),
        ("[fe80::1%eth0]:5", "fe80::"),
        ("/dev/ttyUSB0", "/dev/ttyUSB0"),
    ],
)
def test_ipv6_network_counts_like_one_address(address: str, whose: str) -> None:
    assert origin(address) == whose


@pytest.mark.parametrize(
    ("version", "reason"),
    [(V5, R.QUOTA_EXCEEDED), (V4, R.SERVER_UNAVAILABLE), (V3, R.SERVER_UNAVAILABLE)],
)
def test_sessions_have_a_bound_too(version: Version, reason: R) -> None:
    world = World(sessions=2)
    for name in ("a", "b"):
        world.durable(name).drop()
    assert world.connect("c", version=version).take(Connack).reason == reason
    world.durable("a").drop()
    world.power_cut()
    assert world.connect("c", version=version).take(Connack).reason == reason
    assert world.broker.statistics.refusals == {("connect", R.QUOTA_EXCEEDED): 1}


def test_passwords_that_wait_to_be_compared_have_a_bound() -> None:
    world = World()
    clients = [world.open(policy=Policy(Slow())) for _ in range(257)]
    for number, client in enumerate(clients):
        client.bring(encode(Connect(f"c{number}", username="u", password=b"p"), V5))
    world.turn()
    reasons = [client.take(Connack).reason for client in clients]
    assert reasons.count(R.SUCCESS) == MOST_OF_ONE
    assert reasons.count(R.SERVER_BUSY) == 257 - MOST_OF_ONE


def test_password_check_does_not_count_as_connect_timeout() -> None:
    world = World(connect_timeout_s=10)
    client = world.open(policy=Policy(Slow()))
    client.bring(encode(Connect("c", username="u", password=b"p"), V5))
    world.sleep(20)
    assert client.take(Connack).reason == R.SUCCESS


# -- packets


def test_incomplete_packets_share_a_bound_and_small_ones_close_no_connection() -> None:
    world = World(memory_bytes=300_000, packet_bytes=200_000)
    large = encode(Publish("t", bytes(150_000)), V5)
    greedy = [world.accepted() for _ in range(3)]
    modest = world.accepted()
    for client in greedy:
        client.send_bytes(large[:120_000])
    modest.send_bytes(large[:100])
    assert [client.closed for client in greedy] == [False, False, True]
    assert greedy[2].take(Disconnect).reason == R.QUOTA_EXCEEDED
    for client in (*greedy[:2], modest):
        client.send_bytes(large[120_000 if client is not modest else 100 :])
        assert not client.closed
    assert world.broker.partial == 0
    modest.send_bytes(large[:100])
    modest.drop()
    assert world.broker.partial == 0


@pytest.mark.parametrize("version", [V3, V4, V5])
def test_a_packet_that_is_too_large_is_refused_at_its_length(version: Version) -> None:
    world = World(packet_bytes=1000)
    client = world.accepted("c", version=version)
    client.send_bytes(encode(Publish("t", bytes(2000)), version)[:5])
    assert client.closed
    assert world.broker.partial == 0
    assert [packet.reason for packet in client.received] == (
        [R.PACKET_TOO_LARGE] if version == V5 else []
    )
    assert world.broker.statistics.disconnects == {R.PACKET_TOO_LARGE: 1}


# -- topics


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_topic_with_too_many_levels_is_refused_and_the_client_stays(qos: int) -> None:
    world = World(topic_levels=3)
    client = world.accepted()
    client.publish("a/b/c", "x", qos)
    client.publish("a/b/c/d", "x", qos)
    reasons = [packet.reason for packet in client.take_all(Pubrec if qos == 2 else Puback)]
    assert reasons == ([R.SUCCESS, R.TOPIC_NAME_INVALID] if qos else [])
    assert not client.closed
    assert world.broker.statistics.refusals == {("publish", R.TOPIC_NAME_INVALID): 1}
    assert world.connect(will=Will("a/b/c/d", b"")).take(Connack).reason == R.TOPIC_NAME_INVALID


@pytest.mark.parametrize(
    ("version", "reason"),
    [(V5, R.TOPIC_FILTER_INVALID), (V4, R.UNSPECIFIED_ERROR), (V3, R.UNSPECIFIED_ERROR)],
)
def test_a_filter_with_too_many_levels_is_refused(version: Version, reason: R) -> None:
    client = World(topic_levels=3).accepted("c", version=version)
    client.send(Subscribe(1, [Subscription(item, 1) for item in ("a/+/#", "a/b/c/#")]))
    assert client.take(Suback).reasons == [R.GRANTED_QOS_1, reason]
    if version == V5:
        client.send(Subscribe(1, [Subscription("$share/g/a/b/c", 1)]))
        assert client.take(Suback).reasons == [R.GRANTED_QOS_1]


def test_subscriptions_have_a_bound_in_bytes() -> None:
    world = World(memory_bytes=200_000)
    first, second = world.durable("first"), world.accepted("second")
    reasons = [
        reason
        for number in range(10)
        for reason in first.subscribe(f"{number}{'x' * 60_000}").reasons
    ]
    assert reasons == [R.GRANTED_QOS_2] * 3 + [R.QUOTA_EXCEEDED] * 7
    assert second.subscribe("/".join("x" * 100)).reasons == [R.QUOTA_EXCEEDED]
    world.power_cut()
    first = world.durable("first")
    first.send(Unsubscribe(1, [f"0{'x' * 60_000}"]))
    assert world.accepted().subscribe("/".join("x" * 100)).reasons == [R.GRANTED_QOS_2]


def test_retained_messages_have_a_bound_in_bytes() -> None:
    world = World(retained_bytes=100)
    client = world.accepted()

    def retain(topic: str, size: int) -> int:
        client.publish(topic, bytes(size), 1, retain=True)
        return client.take(Puback).reason

    assert [
        retain("a", 60),
        retain("b", 60),
        retain("a", 99),
        retain("a", 100),
        retain("b", 0),
    ] == [0, 0x97, 0, 0x97, 0]
    world.power_cut()
    client = world.accepted()
    assert [retain("b", 1), retain("a", 0), retain("b", 99)] == [0x97, 0, 0]


# -- reports of a refusal


def test_a_burst_of_refusals_is_logged_once_for_each_client_and_again_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    world = World(acl=[AclSection(write=["mine"])])
    first, second = world.accepted("first"), world.accepted("second")
    for _ in range(100):
        first.publish("yours", "x", qos=1)
        second.publish("yours", "x", qos=1)
    assert world.broker.statistics.refusals == {("publish", R.NOT_AUTHORIZED): 200}
    world.sleep(61)
    first.publish("yours", "x")
    assert [record.message for record in caplog.records] == [
        "first (memory): PUBLISH refused, topic 'yours': not authorized (0x87)",
        "second (memory): PUBLISH refused, topic 'yours': not authorized (0x87)",
        "first (memory): PUBLISH refused, topic 'yours': not authorized (0x87)",
    ]


def test_changed_queue_rules_apply_to_existing_sessions() -> None:
    world = World(queue_messages=2)
    world.absent("s")
    publisher = world.accepted(answers=True)
    reasons = []
    ways: list[Literal["drop the oldest", "refuse the publisher", "end the session"]]
    ways = ["drop the oldest", "refuse the publisher", "end the session"]
    for full in ways:
        world.broker.reconfigure(
            world.config.model_copy(update={"queue": [QueueSection(full=full)]})
        )
        for number in range(3):
            publisher.publish("t", f"{full} {number}", qos=1)
            reasons.append(publisher.take(Puback).reason)
    assert reasons == [0, 0, 0, 0x97, 0x97, 0x97, 0, 0, 0]
    assert "s" not in world.broker.sessions
    assert world.broker.statistics.overflowed == 1 + 3


def test_will_no_longer_allowed_is_not_published() -> None:
    world = World(acl=[AclSection(write=["#"], read=["#"])])
    watching = world.accepted(answers=True)
    watching.subscribe("#")
    client = world.accepted("c", will=Will("t", b"will"))
    world.broker.reconfigure(world.config.model_copy(update={"acl": [AclSection(read=["#"])]}))
    client.drop()
    assert watching.payloads == []
    assert world.broker.wills == {}
    assert world.broker.statistics.refusals == {("publish", R.NOT_AUTHORIZED): 1}


# -- older clients


@pytest.mark.parametrize("version", [V3, V4])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.mqtt("311:MQTT-3.3.5-2")
def test_before_mqtt_5_what_is_refused_is_not_acknowledged_and_ends_the_connection(
    version: Version, qos: int
) -> None:
    """An acknowledged message is never lost. The client has to keep the messages that are not
    acknowledged.
    """
    world = World(spool_bytes=1000)
    client = world.connect("c", version=version, clean=False)
    client.take(Connack)
    client.send(*(Publish("spool/t", b"%060d" % number, qos, number) for number in range(1, 21)))
    acknowledged = [packet.packet_id for packet in client.take_all(Pubrec if qos == 2 else Puback)]
    assert client.closed
    rows = [int(payload) for (payload,) in world.rows("SELECT payload FROM spool ORDER BY id")]
    assert set(acknowledged) <= set(rows)
    assert len(rows) < 20


@pytest.mark.parametrize("version", [V3, V4])
def test_before_mqtt_5_a_full_queue_of_another_that_refuses_ends_the_connection(
    version: Version,
) -> None:
    world = World(
        queue=[QueueSection(clients="slow", full="refuse the publisher")], queue_messages=3
    )
    world.absent("slow")
    client = world.connect("c", version=version)
    client.take(Connack)
    for number in range(1, 6):
        client.publish("t", str(number), qos=1, packet_id=number)
    assert [packet.packet_id for packet in client.take_all(Puback)] == [1, 2, 3]
    assert client.closed
    assert world.durable("slow", answers=True).payloads == [b"1", b"2", b"3"]


# -- QoS 0 for clients that are away


def test_qos_0_that_waits_keeps_its_place_behind_what_is_on_disk() -> None:
    world = World(queue=[QueueSection(qos_0=True)], inflight=10)
    world.absent("s")
    publisher = world.accepted(answers=True)
    for number in range(1999):
        publisher.publish("t", str(number), qos=number % 3)
    client = world.durable("s", answers=True)
    assert client.payloads == [b"%d" % number for number in range(1999)]
    assert world.broker.statistics.dropped == 0
    assert world.broker.queued == 0


def test_qos_0_that_waits_is_dropped_in_its_turn_with_the_oldest() -> None:
    world = World(
        queue=[QueueSection(full="drop the oldest", qos_0=True)], queue_messages=600, inflight=10
    )
    world.absent("s")
    publisher = world.accepted(answers=True)
    for number in range(950):
        publisher.publish("t", str(number), qos=number % 2 if 500 <= number < 600 else 1)
    client = world.durable("s", answers=True)
    dropped = world.broker.statistics.overflowed
    assert client.payloads == [b"%d" % number for number in range(dropped, 950)]
    assert 350 <= dropped <= 350 + 60
    assert world.broker.statistics.dropped == 0


def test_qos_0_that_waits_is_gone_after_a_restart_and_nothing_else_is() -> None:
    world = World(queue=[QueueSection(qos_0=True)])
    world.absent("s")
    publisher = world.accepted(answers=True)
    for number in range(1000):
        publisher.publish("t", str(number), qos=number % 2)
    world.power_cut()
    publisher = world.accepted(answers=True)
    for number in range(1000, 1010):
        publisher.publish("t", str(number), qos=number % 2)
    expected = [b"%d" % number for number in range(1010) if number % 2 or number >= 1000]
    assert world.durable("s", answers=True).payloads == expected


def test_a_session_that_ends_with_qos_0_behind_its_tail_leaves_nothing() -> None:
    world = World(queue=[QueueSection(qos_0=True)], inflight=10)
    world.absent("s")
    publisher = world.accepted(answers=True)
    for number in range(2000):
        publisher.publish("t", str(number), qos=number % 2)
    world.connect("s", clean=True, properties=FOREVER)
    assert world.broker.queued == 0
    world.commit()
    assert (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM message")
        == [(0,)]
    )


# -- limits of one listener


def test_a_listener_may_have_bounds_of_its_own() -> None:
    world = World(connections=5, packet_bytes=10_000, keep_alive_s=100)
    narrow = Policy(Anonymous(), connections=2, packet_bytes=500, keep_alive_s=20)

    def come(name: str, listener: str) -> Client:
        client = world.open(policy=narrow if listener == "narrow" else None, listener=listener)
        client.send(Connect(name, keep_alive=1000))
        return client

    first = come("a", "narrow")
    told = first.take(Connack).properties or {}
    assert (told[P.MAXIMUM_PACKET_SIZE], told[P.SERVER_KEEP_ALIVE]) == (500, 20)
    assert come("b", "narrow").take(Connack).reason == 0
    assert come("c", "narrow").take(Connack).reason == R.QUOTA_EXCEEDED
    assert come("a", "narrow").take(Connack).reason == 0, "who takes over its place"
    wide = come("d", "wide")
    told = wide.take(Connack).properties or {}
    assert (told[P.MAXIMUM_PACKET_SIZE], told[P.SERVER_KEEP_ALIVE]) == (10_000, 100)
    assert come("d", "narrow").take(Connack).reason == R.QUOTA_EXCEEDED
    world.clients[next(iter(world.clients))].drop()
    assert come("d", "narrow").take(Connack).reason == 0
    assert wide.closed
    wide = come("e", "wide")
    wide.publish("t", bytes(1000))
    assert not wide.closed
    small = next(client for client in world.clients.values() if client.connection.client == "d")
    small.publish("t", bytes(1000))
    assert small.take(Disconnect).reason == R.PACKET_TOO_LARGE
