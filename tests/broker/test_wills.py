"""Will messages: when they are published, and when not."""

import pytest

from gateway.broker import broker
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connack, Connect, Publish, Version, Will
from gateway.mqtt.properties import Properties
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Client, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5


def watcher(world: World, topic: str = "will") -> Client:
    client = world.durable("watcher", answers=True)
    client.subscribe(topic)
    client.take_all()
    return client


def delayed(seconds: int) -> Properties:
    return {P.WILL_DELAY_INTERVAL: seconds}


@pytest.mark.mqtt(
    "MQTT-3.1.2-7", "MQTT-3.1.2-8", "MQTT-3.1.2-10", "311:MQTT-3.1.2-8", "311:MQTT-3.1.2-10"
)
@pytest.mark.parametrize("version", [V3, V4, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_once_when_the_line_breaks(version: Version, qos: int) -> None:
    world = World()
    watching = watcher(world)
    world.accepted("c", version=version, will=Will("will", b"gone", qos)).drop()
    world.sleep(1000)
    packet = watching.take(Publish)
    assert (packet.payload, packet.qos, packet.retain) == (b"gone", qos, False)
    assert watching.take_all(Publish) == []


@pytest.mark.mqtt("MQTT-3.14.4-3", "MQTT-3.1.2-8", "311:MQTT-3.14.4-3", "311:MQTT-3.1.2-12")
@pytest.mark.parametrize("version", [V3, V4, V5])
def test_disconnect_discards_the_will(version: Version) -> None:
    world = World()
    watching = watcher(world)
    world.accepted("c", version=version, will=Will("will", b"gone")).disconnect()
    world.accepted("d", version=version).drop()
    world.sleep(1000)
    assert watching.received == []
    world.power_cut()
    world.sleep(1)
    assert watcher(world).received == []


def test_disconnect_with_will_publishes_it() -> None:
    world = World()
    watching = watcher(world)
    world.accepted("c", will=Will("will", b"gone")).disconnect(R.DISCONNECT_WITH_WILL)
    assert watching.payloads == [b"gone"]


@pytest.mark.mqtt("MQTT-3.1.2-8", "MQTT-3.1.2-22")
@pytest.mark.parametrize("how", ["keep alive", "protocol error", "taken over"])
def test_other_ends_of_a_connection_publish_it(how: str) -> None:
    world = World()
    watching = watcher(world)
    client = world.accepted("c", will=Will("will", b"gone"), keep_alive=10)
    if how == "keep alive":
        world.sleep(16)
    elif how == "protocol error":
        client.send_bytes(b"\xf0\0")
    else:
        world.accepted("c")
    assert client.closed
    assert watching.payloads == [b"gone"]


@pytest.mark.mqtt("MQTT-3.1.2-14", "MQTT-3.1.2-15", "311:MQTT-3.1.2-16", "311:MQTT-3.1.2-17")
@pytest.mark.parametrize("retain", [False, True])
def test_will_with_retain_is_retained(retain: bool) -> None:
    world = World()
    world.accepted("c", will=Will("will", b"gone", 1, retain)).drop()
    late = world.accepted()
    late.subscribe("will")
    assert late.payloads == [b"gone"] * retain


@pytest.mark.mqtt("MQTT-3.1.2-8", "MQTT-3.1.3-9")
@pytest.mark.parametrize("back_after", [50, 150])
def test_a_delay_holds_the_will_back_and_a_new_connection_cancels_it(back_after: int) -> None:
    world = World()
    watching = watcher(world)
    client = world.durable("c", will=Will("will", b"gone", 1, properties=delayed(100)))
    client.drop()
    world.sleep(back_after)
    assert world.connect("c", clean=False, properties=FOREVER).take(Connack).session_present
    world.sleep(1000)
    assert watching.payloads == ([b"gone"] if back_after > 100 else [])


@pytest.mark.mqtt("MQTT-3.1.2-8")
@pytest.mark.parametrize("end", ["expiry", "clean start"])
def test_a_delay_is_over_when_the_session_ends(end: str) -> None:
    world = World()
    watching = watcher(world)
    client = world.accepted(
        "c",
        properties={P.SESSION_EXPIRY_INTERVAL: 10},
        will=Will("will", b"gone", properties=delayed(100)),
    )
    client.drop()
    assert watching.payloads == []
    if end == "expiry":
        world.sleep(11)
    else:
        world.accepted("c", clean=True)
    assert watching.payloads == [b"gone"]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("delay", [0, 100])
def test_a_power_cut_of_the_gateway_ends_all_connections(kept: bool, delay: int) -> None:
    world = World()
    watcher(world)
    will = Will("will", b"gone", 2, properties=delayed(delay))
    world.durable("c", will=will) if kept else world.accepted("c", will=will)
    world.power_cut()
    world.sleep(1)
    watching = world.durable("watcher", answers=True)
    assert watching.payloads == ([] if kept and delay else [b"gone"])
    world.sleep(100)
    assert watching.payloads == [b"gone"]
    world.power_cut()
    world.sleep(1000)
    assert world.durable("watcher").payloads == []


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.mqtt("MQTT-3.1.3-10")
def test_a_will_carries_its_properties_and_its_expiry_counts_from_its_publication(
    power_cut: bool,
) -> None:
    world = World()
    properties = {
        P.CONTENT_TYPE: "text/plain",
        P.USER_PROPERTY: [("b", "1"), ("a", "2")],
        P.MESSAGE_EXPIRY_INTERVAL: 60,
    }
    watching = watcher(world)
    world.durable("c", will=Will("will", b"gone", 1, properties=properties | delayed(100))).drop()
    world.sleep(50)
    if power_cut:
        world.power_cut()
        watching = world.durable("watcher", answers=True)
    world.sleep(51)
    assert watching.take(Publish).properties == properties


def test_a_will_of_a_device_goes_to_the_spool() -> None:
    world = World()
    world.accepted("c", will=Will("spool/will", b"gone")).drop()
    world.sleep(1)
    assert world.rows("SELECT device, client, payload FROM spool") == [(None, "c", b"gone")]


def test_wills_refused_by_a_full_spool_do_not_block_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker tries to publish a bounded number of wills a second. A will that is refused goes
    to the end of the queue.
    """
    monkeypatch.setattr(broker, "_AT_ONCE", 5)
    world = World(spool_bytes=1000)
    watching = watcher(world)
    for number in range(6):
        will = Will("spool/will", bytes(1000), 1)
        world.durable(f"stuck {number}", will=will).drop()
    will = Will("will", b"gone", properties=delayed(3))
    world.durable("c", will=will).drop()
    for _ in range(6):
        world.sleep(1)
    assert watching.payloads == [b"gone"]
    assert len(world.broker.wills) == 6


def test_the_wills_of_many_clients_that_go_at_once_are_said_little_by_little() -> None:
    """A will may have hundreds of receivers, so the broker publishes the wills in several turns."""
    world = World()
    watching = watcher(world)
    clients = [world.durable(f"{at}", will=Will("will", b"%d" % at, 1)) for at in range(5)]
    left = []

    def turn_is_over() -> bool:
        if waiting := len(world.broker.effects.wills):
            left.append(waiting)
        return waiting > 0

    world.broker.turn_is_over = turn_is_over
    for client in clients:
        client.break_line()
    world.turn()
    assert sorted(set(left)) == [1, 2, 3, 4, 5]
    assert watching.payloads == [b"%d" % at for at in range(5)]
    assert world.broker.wills == {}


@pytest.mark.mqtt("MQTT-3.1.2-8", "MQTT-3.2.0-1")
@pytest.mark.parametrize("clean", [True, False])
def test_pending_will_is_published_although_its_client_returns(clean: bool) -> None:
    world = World()
    watching = watcher(world)
    client = world.durable("c", will=Will("will", b"gone", 1))
    client.subscribe("will")
    world.broker.turn_is_over = lambda: bool(world.broker.effects.wills)
    client.break_line()
    again = world.open()
    again.bring(encode(Connect("c", V5, clean, properties=FOREVER), V5))
    world.turn()
    assert watching.payloads == [b"gone"]
    assert again.take(Connack).session_present is not clean
    assert again.payloads == ([] if clean else [b"gone"])


@pytest.mark.parametrize("back", [True, False])
def test_the_sessions_of_many_clients_that_go_at_once_end_little_by_little(back: bool) -> None:
    """Each session may have hundreds of subscriptions, so the broker ends the sessions in several
    turns. If a client comes back before its turn, its session has ended nevertheless.
    """
    world = World()
    clients = [world.accepted(f"{at}") for at in range(5)]
    for client in clients:
        client.subscribe("t", "u")
    effects, left = world.broker.effects, []

    def turn_is_over() -> bool:
        if waiting := len(effects.leaves):
            left.append(waiting)
        return waiting > 0

    world.broker.turn_is_over = turn_is_over
    for client in clients:
        client.break_line()
    if back:
        again = world.open()
        again.bring(encode(Connect("0", V5, False), V5))
    world.turn()
    assert len(set(left)) >= 4
    assert list(world.broker.sessions) == (["0"] if back else [])
    if back:
        assert not again.take(Connack).session_present
        again.publish("t", b"x", 1)
        assert again.payloads == []
