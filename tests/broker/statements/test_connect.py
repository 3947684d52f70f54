"""CONNECT and the beginning of a connection: cases not in tests/broker/test_connect.py."""

import pytest

from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Publish,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from gateway.mqtt.properties import PropertyId as P
from gateway.mqtt.reason import ReasonCode as R
from tests.broker.harness import FOREVER, World

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
VERSIONS = pytest.mark.parametrize("version", [V3, V4, V5])


@pytest.mark.mqtt("MQTT-3.14.0-1", "MQTT-3.2.0-1", "311:MQTT-3.2.0-1")
@VERSIONS
@pytest.mark.parametrize("then", ["protocol error", "taken over", "shutting down", "keep alive"])
def test_connection_ended_before_connack_gets_no_packet(version: Version, then: str) -> None:
    """CONNACK waits for the disk. The broker must not send DISCONNECT before CONNACK."""
    world = World()
    properties = FOREVER if version == V5 else None
    world.slow_disk = True
    client = world.open(version)
    client.send(Connect("c", version, False, 10, properties=properties))
    match then:
        case "protocol error":
            client.send_bytes(b"\x10\0")
        case "taken over":
            world.connect("c", version=version, clean=False, properties=properties)
        case "shutting down":
            world.dismiss(client, R.SERVER_SHUTTING_DOWN)
        case _:
            world.sleep(16)
    assert client.closed
    world.commit()
    assert client.raw == b""


@pytest.mark.mqtt("MQTT-3.2.0-1", "MQTT-3.1.4-5", "311:MQTT-3.2.0-1")
@VERSIONS
def test_packets_sent_with_connect_are_answered_after_connack(version: Version) -> None:
    world = World()
    world.slow_disk = True
    client = world.open(version)
    client.send(
        Connect("c", version, False, properties=FOREVER if version == V5 else None),
        Subscribe(1, [Subscription("t", 1)]),
        Publish("t", b"x", 1, 2),
        Pingreq(),
    )
    assert client.raw == b""
    world.commit()
    assert [type(packet).__name__ for packet in client.received] == [
        "Connack",
        "Suback",
        "Publish",
        "Puback",
        "Pingresp",
    ]


@pytest.mark.mqtt("MQTT-3.14.4-1", "MQTT-3.14.4-2")
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_disconnect_is_the_last_packet_of_the_broker(kept: bool, qos: int) -> None:
    """A PUBLISH makes the queue of its own sender's session overflow. The broker sends DISCONNECT,
    and after it no acknowledgement of this PUBLISH.
    """
    world = World(queue_messages=3)
    client = world.durable("c") if kept else world.accepted("c")
    client.subscribe("t")
    client.send(*(Publish("t", b"x", qos, number) for number in range(1, 9)))
    assert client.closed
    packets = client.take_all()
    assert [type(packet) for packet in packets].index(Disconnect) == len(packets) - 1
    assert packets[-1].reason == R.QUOTA_EXCEEDED


@VERSIONS
@pytest.mark.parametrize("piece", [b"\x10", b"\x10\xff", b"\x10\x20\0\4MQ"])
def test_a_client_that_sends_its_connect_byte_by_byte_has_no_more_time_for_that(
    version: Version, piece: bytes
) -> None:
    world = World(connect_timeout_s=10)
    client = world.open(version)
    client.send_bytes(piece[:1])
    for byte in piece[1:] + b"TT":
        world.sleep(4)
        client.send_bytes(bytes((byte,)))
    world.sleep(4)
    assert client.closed
    assert client.raw == b""


@pytest.mark.mqtt("MQTT-3.1.2-21", "MQTT-3.2.2-21", "MQTT-3.2.2-22", "MQTT-3.1.2-22")
@pytest.mark.parametrize(
    ("asked", "told", "silence"), [(0, 100, 150), (200, 100, 150), (100, None, 150), (10, None, 15)]
)
def test_a_server_keep_alive_replaces_one_that_is_longer_or_none(
    asked: int, told: int | None, silence: int
) -> None:
    world = World(keep_alive_s=100)
    client = world.connect("c", keep_alive=asked)
    assert client.take(Connack).properties.get(P.SERVER_KEEP_ALIVE) == told
    world.sleep(silence)
    assert not client.closed
    world.sleep(1)
    assert client.take(Disconnect).reason == R.KEEP_ALIVE_TIMEOUT


@pytest.mark.mqtt("311:MQTT-3.1.2-24")
@pytest.mark.parametrize("version", [V3, V4])
def test_an_older_client_keeps_the_keep_alive_that_it_asked_for(version: Version) -> None:
    """Before MQTT 5, the server cannot tell the client another Keep Alive."""
    world = World(keep_alive_s=100)
    patient, silent = (
        world.accepted(name, version=version, keep_alive=seconds)
        for name, seconds in (("a", 1000), ("b", 0))
    )
    world.sleep(1500)
    assert not patient.closed
    world.sleep(1)
    assert patient.closed
    world.sleep(1e6)
    assert not silent.closed


@pytest.mark.mqtt("MQTT-3.1.2-22", "311:MQTT-3.1.2-24")
@VERSIONS
def test_packets_from_the_server_do_not_keep_a_connection_alive(version: Version) -> None:
    world = World()
    client = world.accepted("c", version=version, keep_alive=10)
    client.subscribe("t", qos=0)
    publisher = world.accepted()
    for _ in range(16):
        publisher.publish("t", "x")
        world.sleep(1)
    assert client.closed


@pytest.mark.mqtt("MQTT-3.1.3-5", "311:MQTT-3.1.3-5")
@VERSIONS
def test_client_identifiers_of_letters_and_digits_are_taken(version: Version) -> None:
    world = World()
    for name in ("0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ", "x"):
        world.accepted(name, version=version)
    assert len(world.broker.sessions) == 4


@pytest.mark.mqtt("MQTT-3.1.3-2", "311:MQTT-3.1.3-2")
@pytest.mark.parametrize("name", ["x" * 256, "ünï/+#$", " "])
@pytest.mark.parametrize("version", [V4, V5])
def test_other_client_identifiers_name_sessions_too(name: str, version: Version) -> None:
    world = World()
    options = {"version": version, "clean": False, "properties": FOREVER if version == V5 else None}
    world.accepted(name, **options).subscribe("t")
    world.power_cut()
    assert world.connect(name, **options).take(Connack).session_present


@pytest.mark.mqtt("MQTT-3.1.3-7", "MQTT-3.2.2-16")
def test_an_assigned_client_identifier_can_be_used_again() -> None:
    world = World()
    first = world.connect("", clean=False, properties=FOREVER)
    connack = first.take(Connack)
    assert not connack.session_present
    first.subscribe("t")
    first.drop()
    assert (
        world.connect(
            connack.properties[P.ASSIGNED_CLIENT_IDENTIFIER], clean=False, properties=FOREVER
        )
        .take(Connack)
        .session_present
    )


@pytest.mark.mqtt("MQTT-3.1.2-4", "MQTT-3.1.4-4", "311:MQTT-3.1.2-6")
@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_clean_start_forgets_everything_of_the_former_session(
    version: Version, power_cut: bool
) -> None:
    """The broker forgets subscriptions, queued and unacknowledged messages, and identifiers of QoS
    2 messages.
    """
    world = World()
    options = {"version": version, "properties": FOREVER if version == V5 else None}
    client = world.accepted("c", clean=False, **options)
    client.subscribe("t")
    client.publish("t", "1", 2, packet_id=7)
    client.drop()
    publisher = world.accepted(answers=True)
    publisher.publish("t", "2", 1)
    if power_cut:
        world.power_cut()
    client = world.accepted("c", clean=True, **options)
    assert client.received == []
    hearer = world.accepted(answers=True)
    hearer.subscribe("t")
    client.publish("t", "3", 2, packet_id=7)
    assert hearer.payloads == [b"3"]
    assert all(not isinstance(packet, Publish) for packet in client.received)
    world.commit()
    assert (
        world.rows("SELECT count(*) FROM queue")
        == world.rows("SELECT count(*) FROM subscription")
        == [(0,)]
    )


@pytest.mark.mqtt("MQTT-3.1.4-3", "MQTT-3.1.4-2", "MQTT-3.1.4-1")
def test_a_refused_connect_takes_no_session_over() -> None:
    world = World()
    first = world.durable("c")
    for properties, will in (({P.AUTHENTICATION_METHOD: "x"}, None), (None, Will("a/b/c/" * 100))):
        assert world.connect("c", properties=properties, will=will).take(Connack).reason >= 0x80
    assert not first.closed
    first.publish("t", "x", 1)
    first.take(Puback)


@pytest.mark.mqtt("MQTT-3.2.2-1", "MQTT-3.2.2-6", "311:MQTT-3.2.2-4")
@VERSIONS
def test_the_acknowledge_flags_hold_session_present_and_nothing_else(version: Version) -> None:
    world = World()
    properties = FOREVER if version == V5 else None
    for _ in range(2):
        client = world.connect("c", version=version, clean=False, properties=properties)
    assert client.raw[2] == (version > V3)
    refused = world.open(version)
    name, level = {V3: (b"MQIsdp", 9), V4: (b"MQTT", 2), V5: (b"MQTT", 6)}[version]
    refused.send_bytes(b"\x10%c\0%c%b%c\2\0\0\0\0" % (8 + len(name), len(name), name, level))
    assert refused.raw[2:4] == bytes((0, R.UNSUPPORTED_PROTOCOL_VERSION if version == V5 else 1))
    assert refused.closed
