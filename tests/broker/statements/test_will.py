"""Wills: when they are published or dropped, and with which properties (MQTT 5, sections 3.1.2.5
and 3.14.4).
"""

import pytest

from gateway.access.rules import Policy
from gateway.mqtt.packets import Connack, Disconnect, Pingreq, Publish, Version, Will
from gateway.mqtt.properties import Properties
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Anonymous, Client, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
VERSIONS = pytest.mark.parametrize("version", [V3, V4, V5])
WILL = Will("will", b"gone", 1)


def delayed(seconds: int) -> Will:
    return Will("will", b"gone", 1, properties={P.WILL_DELAY_INTERVAL: seconds})


def watcher(world: World) -> Client:
    """Return a client that receives all wills."""
    client = world.accepted("watcher", answers=True)
    client.subscribe("will")
    return client


def with_will(world: World, will: Will = WILL, expiry: int = 0, **more: object) -> Client:
    properties: Properties | None = {P.SESSION_EXPIRY_INTERVAL: expiry} if expiry else None
    return world.accepted("mortal", will=will, properties=properties, **more)


@pytest.mark.mqtt("MQTT-3.1.2-7", "MQTT-3.1.2-8", "311:MQTT-3.1.2-8")
@VERSIONS
@pytest.mark.parametrize(
    "end", ["network failure", "keep alive", "protocol error", "reserved packet type"]
)
def test_will_is_published_when_the_connection_ends_without_disconnect(
    version: Version, end: str
) -> None:
    world = World()
    hearer = watcher(world)
    client = with_will(world, version=version, keep_alive=10)
    match end:
        case "network failure":
            client.drop()
        case "keep alive":
            hearer_stays_awake(world, hearer, 16)
        case "protocol error":
            client.send_bytes(bytes.fromhex("82020000"))
        case _:
            client.send_bytes(bytes.fromhex("0000"))
    assert client.closed
    assert hearer.take(Publish) == Publish("will", b"gone", 1, 1)


def hearer_stays_awake(world: World, hearer: Client, seconds: int) -> None:
    for _ in range(seconds):
        world.sleep(1)
    hearer.send(Pingreq())
    hearer.received = [packet for packet in hearer.received if isinstance(packet, Publish)]


@pytest.mark.mqtt(
    "MQTT-3.1.2-8", "MQTT-3.1.2-10", "MQTT-3.14.4-3", "311:MQTT-3.1.2-10", "311:MQTT-3.14.4-3"
)
@VERSIONS
@pytest.mark.parametrize("expiry", [0, 100])
def test_disconnect_discards_the_will(version: Version, expiry: int) -> None:
    world = World()
    hearer = watcher(world)
    client = with_will(
        world, expiry=expiry if version == V5 else 0, version=version, clean=not expiry
    )
    client.disconnect()
    world.sleep(1000)
    world.power_cut()
    world.sleep(1000)
    assert hearer.received == []
    assert world.broker.wills == {}
    assert world.rows("SELECT * FROM will") == []


@pytest.mark.mqtt("MQTT-3.1.2-8")
@pytest.mark.parametrize("reason", [R.DISCONNECT_WITH_WILL, R.UNSPECIFIED_ERROR])
def test_disconnect_with_another_reason_than_0_publishes_the_will(reason: R) -> None:
    world = World()
    hearer = watcher(world)
    with_will(world).disconnect(reason)
    assert hearer.payloads == [b"gone"]


@pytest.mark.mqtt("MQTT-3.1.2-14", "MQTT-3.1.2-15", "311:MQTT-3.1.2-16", "311:MQTT-3.1.2-17")
@VERSIONS
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_will_is_published_with_its_qos_and_retain_flag(
    version: Version, retain: bool, qos: int
) -> None:
    world = World()
    hearer = watcher(world)
    with_will(world, Will("will", b"gone", qos, retain), version=version).drop()
    assert [(packet.payload, packet.qos, packet.retain) for packet in hearer.take_all(Publish)] == [
        (b"gone", qos, False)
    ]
    later = world.accepted()
    later.subscribe("will")
    assert [(packet.payload, packet.qos, packet.retain) for packet in later.received] == [
        (b"gone", qos, True)
    ] * retain


@pytest.mark.mqtt("MQTT-3.1.2-10", "311:MQTT-3.1.2-10")
@VERSIONS
def test_will_is_published_once(version: Version) -> None:
    world = World()
    hearer = watcher(world)
    with_will(world, version=version).drop()
    world.accepted("mortal", version=version).drop()
    world.sleep(1000)
    assert hearer.payloads == [b"gone"]
    world.power_cut()
    world.sleep(1000)
    assert world.rows("SELECT * FROM will") == []


@pytest.mark.mqtt("MQTT-3.1.2-8")
@pytest.mark.parametrize(
    ("delay", "expiry", "due"),
    [(60, 1000, 60), (1000, 60, 60), (60, 0, 0), (0, 1000, 0), (60, 0xFFFF_FFFF, 60)],
)
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_will_waits_for_its_delay_or_for_the_end_of_the_session(
    delay: int, expiry: int, due: int, power_cut: bool
) -> None:
    world = World()
    watch = world.durable("watcher")
    watch.subscribe("will")
    with_will(world, delayed(delay), expiry, clean=False).drop()
    if due:
        world.sleep(due - 1)
        assert watch.received == []
        if power_cut:
            world.power_cut()
            watch = world.durable("watcher")
        world.sleep(1)
    assert watch.payloads == [b"gone"]


@pytest.mark.mqtt("MQTT-3.1.3-9", "MQTT-3.1.2-8", "MQTT-3.1.2-10")
@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("power_cut", [False, True])
def test_will_is_not_published_if_the_client_returns_within_the_delay(
    taken_over: bool, power_cut: bool
) -> None:
    world = World()
    world.durable("watcher").subscribe("will")
    client = with_will(world, delayed(60), 1000, clean=False)
    if power_cut:
        world.power_cut()
    elif not taken_over:
        client.drop()
    world.sleep(30)
    again = world.connect("mortal", clean=False, properties=FOREVER)
    assert again.take(Connack).session_present
    world.sleep(100)
    again.disconnect()
    world.sleep(100)
    assert world.durable("watcher").received == []


@pytest.mark.mqtt("MQTT-3.1.2-8")
@pytest.mark.parametrize("dropped", [False, True])
def test_clean_start_ends_the_session_and_publishes_the_earlier_will(
    dropped: bool,
) -> None:
    world = World()
    hearer = watcher(world)
    client = with_will(world, delayed(60), 1000)
    if dropped:
        client.drop()
    assert hearer.received == []
    with_will(world, Will("will", b"not yet"))
    assert hearer.payloads == [b"gone"]


@pytest.mark.mqtt("MQTT-3.1.2-8", "311:MQTT-3.1.2-8")
@VERSIONS
def test_will_without_delay_is_published_when_the_session_is_taken_over(version: Version) -> None:
    world = World()
    hearer = watcher(world)
    old = with_will(world, version=version, clean=False)
    with_will(world, version=version, clean=False)
    assert old.closed
    assert hearer.payloads == [b"gone"]


@pytest.mark.mqtt("MQTT-3.1.2-7")
def test_a_new_connection_replaces_the_will() -> None:
    world = World()
    hearer = watcher(world)
    with_will(
        world, Will("will", b"first", 1, properties={P.WILL_DELAY_INTERVAL: 9}), 100, clean=False
    )
    with_will(world, Will("will", b"second", 1), 100, clean=False).drop()
    world.sleep(1000)
    assert hearer.payloads == [b"second"]


@pytest.mark.mqtt("MQTT-3.1.4-2", "MQTT-3.1.4-6")
def test_a_refused_client_has_no_will() -> None:
    world = World()
    hearer = watcher(world)
    client = world.connect("mortal", will=WILL, policy=Policy(Anonymous(False)))
    assert client.take(Connack).reason == R.NOT_AUTHORIZED
    assert hearer.received == []


@pytest.mark.mqtt("MQTT-3.1.2-8")
def test_will_refused_by_a_full_spool_is_published_later() -> None:
    world = World(spool_bytes=200)
    world.accepted(answers=True).publish("spool/t", bytes(100), qos=1)
    with_will(world, Will("spool/will", b"gone", 1)).drop()
    world.sleep(1)
    assert world.rows("SELECT topic FROM spool") == [("spool/t",)]
    world.power_cut()
    world.broker.spool.landed(2)
    world.sleep(1)
    assert world.rows("SELECT topic FROM spool") == [("spool/t",), ("spool/will",)]
    world.sleep(1)
    assert world.rows("SELECT * FROM will") == []


@pytest.mark.parametrize("version", [V4, V5])
def test_a_will_on_a_topic_that_is_not_accepted_is_refused_at_once(version: Version) -> None:
    """MQTT 5, section 3.2.2.2: CONNACK has 0x90. MQTT 3.1.1 has no return code for this."""
    world = World(topic_levels=3)
    client = world.connect("mortal", version=version, will=Will("a/b/c/d"))
    assert [packet.reason for packet in client.take_all(Connack)] == (
        [R.TOPIC_NAME_INVALID] if version == V5 else []
    )
    assert client.take_all(Disconnect) == []
    assert client.closed
