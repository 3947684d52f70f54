"""CONNECT, CONNACK and DISCONNECT: sessions begin, continue, are taken over and end."""

import pytest

from gateway.access.peer import DeviceIdentity
from gateway.access.rules import Policy
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Pubrec,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, Anonymous, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
VERSIONS = pytest.mark.parametrize("version", [V3, V4, V5])


@pytest.mark.mqtt(
    "MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-3.2.0-2", "311:MQTT-3.1.4-4", "311:MQTT-3.2.0-1"
)
@VERSIONS
def test_connack_is_the_first_packet_and_comes_once(version: Version) -> None:
    world = World()
    client = world.connect("c", version=version)
    client.send(Pingreq())
    assert [type(packet) for packet in client.received] == [Connack, Pingresp]
    assert client.take(Connack).reason == R.SUCCESS


@pytest.mark.mqtt("MQTT-3.12.4-1", "311:MQTT-3.12.4-1")
@VERSIONS
def test_every_pingreq_is_answered(version: Version) -> None:
    client = World().accepted("c", version=version)
    client.send(Pingreq(), Pingreq())
    assert client.take_all() == [Pingresp(), Pingresp()]


@pytest.mark.mqtt(
    *(
        "MQTT-3.1.2-4",
        "MQTT-3.1.2-5",
        "MQTT-3.1.2-6",
        "MQTT-3.1.2-23",
        "MQTT-3.1.4-4",
        "MQTT-3.2.2-2",
        "MQTT-3.2.2-3",
        "MQTT-4.1.0-1",
    ),
    *(
        "311:MQTT-3.1.2-4",
        "311:MQTT-3.1.2-6",
        "311:MQTT-3.1.4-3",
        "311:MQTT-3.2.2-1",
        "311:MQTT-3.2.2-2",
        "311:MQTT-3.2.2-3",
    ),
    *("311:MQTT-4.1.0-1", "311:MQTT-4.1.0-2"),
)
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_kept_session_is_resumed_and_a_clean_start_ends_it(
    version: Version, power_cut: bool
) -> None:
    world = World()

    def connect(clean: bool) -> bool:
        client = world.connect(
            "c", version=version, clean=clean, properties=FOREVER if version == V5 else None
        )
        present = client.take(Connack).session_present
        client.subscribe("t")
        if power_cut:
            world.power_cut()
        else:
            client.disconnect()
        return present

    assert [connect(clean) for clean in (False, False, True, False)] == [
        False,
        True,
        False,
        version == V5,
    ]


@pytest.mark.mqtt("MQTT-3.1.3-2", "311:MQTT-3.1.3-2")
def test_each_client_identifier_has_a_session_of_its_own() -> None:
    world = World()
    world.durable("a").subscribe("t")
    assert not world.connect("A", clean=False, properties=FOREVER).take(Connack).session_present
    assert world.connect("a", clean=False, properties=FOREVER).take(Connack).session_present


@pytest.mark.mqtt("MQTT-4.1.0-2", "MQTT-3.1.2-23")
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_session_ends_when_its_expiry_interval_is_over(power_cut: bool) -> None:
    world = World()
    client = world.accepted("c", clean=False, properties={P.SESSION_EXPIRY_INTERVAL: 100})
    client.subscribe("t")
    world.sleep(500)
    client.drop()
    world.sleep(60)
    if power_cut:
        world.power_cut()
    world.sleep(60)
    assert world.broker.sessions == {}
    world.commit()
    assert [
        world.rows(f"SELECT count(*) FROM {table}") for table in ("session", "subscription", "flow")
    ] == [[(0,)]] * 3


def test_disconnect_may_change_the_session_expiry_interval() -> None:
    world = World()
    client = world.durable("c")
    client.disconnect(R.NORMAL_DISCONNECTION, {P.SESSION_EXPIRY_INTERVAL: 0})
    assert world.broker.sessions == {}
    assert not world.connect("c", clean=False).take(Connack).session_present


def test_disconnect_cannot_keep_a_session_that_was_to_end() -> None:
    client = World().accepted("c")
    client.disconnect(R.NORMAL_DISCONNECTION, {P.SESSION_EXPIRY_INTERVAL: 5})
    assert client.take(Disconnect).reason == R.PROTOCOL_ERROR


def test_disconnect_cannot_keep_a_session_that_was_resumed_to_end() -> None:
    """MQTT 5, section 3.14.2.2.2: if the Session Expiry Interval of the last CONNECT is 0,
    DISCONNECT must not set another one. An earlier CONNECT does not count.
    """
    world = World()
    world.durable("c").drop()
    client = world.accepted("c", clean=False)
    client.disconnect(R.NORMAL_DISCONNECTION, {P.SESSION_EXPIRY_INTERVAL: 5})
    assert client.take(Disconnect).reason == R.PROTOCOL_ERROR
    assert world.broker.sessions == {}


def test_a_session_that_is_resumed_without_expiry_leaves_nothing_in_the_store() -> None:
    world = World()
    first = world.durable("c")
    first.subscribe("t")
    first.drop()
    world.durable("p", answers=True).publish("t", "x", qos=2)
    again = world.accepted("c", clean=False)
    assert again.payloads == [b"x"]
    world.power_cut()
    assert not world.connect("c", clean=False).take(Connack).session_present
    world.commit()
    assert (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM message")
        == [(0,)]
    )


def test_the_expiry_interval_has_a_limit_that_connack_tells() -> None:
    world = World(session_expiry_s=3600)
    connack = world.connect("c", clean=False, properties=FOREVER).take(Connack)
    assert connack.properties[P.SESSION_EXPIRY_INTERVAL] == 3600


@pytest.mark.mqtt("MQTT-3.1.4-3", "311:MQTT-3.1.4-2")
@pytest.mark.parametrize("version", [V4, V5])
def test_a_second_connection_takes_the_session_over(version: Version) -> None:
    world = World()
    options = {"version": version, "clean": False, "properties": FOREVER if version == V5 else None}
    first = world.accepted("c", **options)
    first.subscribe("t")
    second = world.connect("c", **options)
    assert first.closed
    if version == V5:
        assert first.take(Disconnect).reason == R.SESSION_TAKEN_OVER
    assert second.take(Connack).session_present
    world.accepted(answers=True).publish("t", "x", qos=1)
    assert second.payloads == [b"x"]


def test_taking_over_a_session_that_ends_with_its_connection_begins_a_new_one() -> None:
    world = World()
    world.accepted("c").subscribe("t")
    assert not world.connect("c", clean=False).take(Connack).session_present
    assert world.broker.router.count == 0


@pytest.mark.mqtt("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16", "311:MQTT-3.1.3-6")
@pytest.mark.parametrize("version", [V4, V5])
def test_empty_client_identifier_is_replaced_by_an_unused_one(version: Version) -> None:
    world = World()
    clients = [world.connect("", version=version) for _ in range(3)]
    names = {client.connection.session.client for client in clients}
    assert len(names) == 3
    if version == V5:
        assert {
            client.take(Connack).properties[P.ASSIGNED_CLIENT_IDENTIFIER] for client in clients
        } == names


@pytest.mark.mqtt(
    "311:MQTT-3.1.3-9", "311:MQTT-3.2.2-5", "MQTT-3.1.3-8", "MQTT-3.2.2-7", "MQTT-4.13.2-1"
)
def test_an_empty_client_identifier_cannot_keep_a_session_in_3_1_1() -> None:
    world = World()
    client = world.open(V4)
    client.send_bytes(bytes.fromhex("100C 0004 4D515454 04 00 0000 0000"))
    assert client.take(Connack).reason == R.CLIENT_IDENTIFIER_NOT_VALID
    assert client.closed


@pytest.mark.mqtt("MQTT-3.1.4-2", "MQTT-3.1.4-6", "311:MQTT-3.1.4-5", "MQTT-3.2.2-7")
@VERSIONS
def test_after_a_refused_connect_nothing_more_is_processed(version: Version) -> None:
    world = World()
    client = world.open(version, policy=Policy(Anonymous(False)))
    client.send(Connect("c", version), Subscribe(1, [Subscription("t", 1)]), Publish("t", b"x"))
    assert client.take(Connack).reason == R.NOT_AUTHORIZED
    assert client.received == []
    assert client.closed
    assert world.broker.sessions == {}


@pytest.mark.mqtt("MQTT-4.12.0-1", "MQTT-4.12.0-6")
def test_an_authentication_method_is_refused_and_never_used() -> None:
    world = World()
    client = world.connect(
        "c", properties={P.AUTHENTICATION_METHOD: "SCRAM-SHA-1", P.AUTHENTICATION_DATA: b"x"}
    )
    connack = client.take(Connack)
    assert connack.reason == R.BAD_AUTHENTICATION_METHOD
    assert P.AUTHENTICATION_METHOD not in (connack.properties or {})
    assert client.closed


def test_auth_without_a_method_is_a_protocol_error() -> None:
    client = World().accepted("c")
    client.send(Auth(R.REAUTHENTICATE, {P.AUTHENTICATION_METHOD: "x"}))
    assert client.take(Disconnect).reason == R.PROTOCOL_ERROR


@pytest.mark.mqtt("MQTT-3.1.0-2", "MQTT-4.13.1-1", "311:MQTT-3.1.0-2", "311:MQTT-4.8.0-1")
@VERSIONS
def test_a_second_connect_closes_the_connection(version: Version) -> None:
    client = World().accepted("c", version=version)
    client.send(Connect("c", version))
    assert client.closed
    assert [packet.reason for packet in client.take_all(Disconnect)] == (
        [R.PROTOCOL_ERROR] if version == V5 else []
    )


@pytest.mark.mqtt("MQTT-3.14.0-1", "311:MQTT-3.2.2-6")
@pytest.mark.parametrize(
    "data", ["C000", "300300017800", "10", "1000", "E000", "82080001000003612F6200"]
)
def test_a_client_that_does_not_begin_with_connect_hears_nothing(data: str) -> None:
    world = World()
    client = world.open()
    client.send_bytes(bytes.fromhex(data))
    world.sleep(11)
    assert client.closed
    assert client.raw == b""


@pytest.mark.mqtt("MQTT-3.1.2-22", "MQTT-3.2.2-22", "311:MQTT-3.1.2-24")
@VERSIONS
def test_silence_of_one_and_a_half_keep_alives_closes_the_connection(version: Version) -> None:
    world = World()
    client = world.accepted("c", version=version, keep_alive=60)
    for _ in range(3):
        world.sleep(89)
        assert not client.closed
        client.send(Pingreq())
    world.sleep(91)
    assert client.closed
    assert [packet.reason for packet in client.take_all(Disconnect)] == (
        [R.KEEP_ALIVE_TIMEOUT] if version == V5 else []
    )


def test_keep_alive_0_has_no_timeout() -> None:
    world = World()
    client = world.accepted("c", keep_alive=0)
    world.sleep(1e6)
    assert not client.closed


def test_a_device_must_use_its_name() -> None:
    world = World()
    client = world.connect("other", device=DeviceIdentity("pump-3", 1, 1))
    assert client.take(Connack).reason == R.CLIENT_IDENTIFIER_NOT_VALID
    assert client.closed


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_device_without_memory_does_not_fall_over_the_identifiers_of_its_former_life(
    power_cut: bool,
) -> None:
    world = World()
    first = world.durable("pump-3", device=DeviceIdentity("pump-3", 1, 1))
    first.publish("spool/t", "old", qos=2, packet_id=1)
    first.drop()
    if power_cut:
        world.power_cut()
    again = world.connect(
        "pump-3", clean=False, properties=FOREVER, device=DeviceIdentity("pump-3", 2, 1)
    )
    assert not again.take(Connack).session_present
    again.publish("spool/t", "new", qos=2, packet_id=1)
    again.take(Pubrec)
    assert world.rows("SELECT incarnation, payload FROM spool") == [(1, b"old"), (2, b"new")]


def test_a_device_that_comes_back_finds_its_identifiers() -> None:
    world = World()
    first = world.durable("pump-3", device=DeviceIdentity("pump-3", 1, 1))
    first.publish("spool/t", "x", qos=2, packet_id=1)
    again = world.durable("pump-3", device=DeviceIdentity("pump-3", 1, 2))
    again.publish("spool/t", "x", qos=2, packet_id=1, dup=True)
    again.take(Pubrec)
    assert world.rows("SELECT sequence, payload FROM spool") == [(1, b"x")]


@pytest.mark.mqtt("MQTT-3.14.4-1", "MQTT-3.14.4-2")
def test_after_disconnect_nothing_is_read_and_nothing_is_sent() -> None:
    world = World()
    client = world.accepted("c")
    client.send(Disconnect(), Publish("spool/t", b"late"), Pingreq())
    assert client.closed
    assert client.received == []
    assert world.broker.spool.size == 0


@pytest.mark.mqtt("MQTT-3.1.2-29")
@pytest.mark.parametrize("wanted", [0, 1])
def test_reason_strings_are_sent_on_request_only(wanted: int) -> None:
    client = World().accepted("c", properties={P.REQUEST_PROBLEM_INFORMATION: wanted})
    client.send_bytes(bytes.fromhex("F000"))
    packet = client.take(Disconnect)
    assert (P.REASON_STRING in (packet.properties or {})) == bool(wanted)


def test_each_byte_may_come_on_its_own() -> None:
    world = World()
    subscriber = world.accepted(answers=True)
    subscriber.subscribe("t")
    client = world.open()
    packets = [
        Connect("c", V5),
        Publish("t", bytes(300), 1, 1),
        Publish("t", bytes(20_000), 2, 2),
        Pingreq(),
        Disconnect(),
    ]
    for byte in b"".join(encode(packet, V5) for packet in packets):
        client.send_bytes(bytes((byte,)))
    assert [type(packet).__name__ for packet in client.received] == [
        "Connack",
        "Puback",
        "Pubrec",
        "Pingresp",
    ]
    assert [len(payload) for payload in subscriber.payloads] == [300, 20_000]


def test_packet_announced_too_large_is_not_buffered() -> None:
    client = World(packet_bytes=1000).accepted("c")
    client.send_bytes(bytes.fromhex("30FFFFFF7F"))
    assert client.take(Disconnect).reason == R.PACKET_TOO_LARGE
    assert client.closed


@pytest.mark.mqtt("MQTT-3.1.2-28")
def test_client_never_gets_response_information() -> None:
    connack = World().connect("c", properties={P.REQUEST_RESPONSE_INFORMATION: 0}).take(Connack)
    assert P.RESPONSE_INFORMATION not in connack.properties
