"""CONNECT packets that the gateway refuses, and the MQTT version in which it writes the answer."""

import pytest

from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MalformedPacket, MqttError, ProtocolError
from gateway.mqtt.packets import Connect, Side, Version
from gateway.mqtt.reason import ReasonCode as R
from gateway.mqtt.stream import PacketStream
from tests.mqtt.examples import from_hex, shows

V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5
MQTT5 = "00 04 'MQTT' 05"
MQTT4 = "00 04 'MQTT' 04"
MQTT3 = "00 06 'MQIsdp' 03"


def stream_with(body: str) -> PacketStream:
    stream = PacketStream(1 << 20)
    data = from_hex(body)
    stream.feed(b"\x10" + bytes((len(data),)) + data)
    return stream


def error_for(body: str) -> MqttError:
    with pytest.raises(MqttError) as caught:
        list(stream_with(body))
    return caught.value


@pytest.mark.mqtt("MQTT-3.1.4-1", "311:MQTT-3.1.4-1")
@pytest.mark.parametrize(
    ("body", "version", "words"),
    [
        shows("MQTT-3.1.2-3")(f"{MQTT5} 03 00 00 00 00 00", V5, "the reserved flag is set"),
        shows("311:MQTT-3.1.2-3")(f"{MQTT4} 03 00 00 00 00", V4, "the reserved flag is set"),
        shows("MQTT-3.1.2-12")(
            f"{MQTT5} 1E 00 00 00 00 01 'a' 00 00 01 't' 00 00", V5, "will QoS is 3"
        ),
        shows("311:MQTT-3.1.2-14")(
            f"{MQTT4} 1E 00 00 00 01 'a' 00 01 't' 00 00", V4, "will QoS is 3"
        ),
        (f"{MQTT3} 1E 00 00 00 01 'a' 00 01 't' 00 00", V3, "will QoS is 3"),
        shows("MQTT-3.1.2-11")(f"{MQTT5} 0A 00 00 00 00 01 'a'", V5, "set without a will"),
        shows("MQTT-3.1.2-13")(f"{MQTT5} 22 00 00 00 00 01 'a'", V5, "set without a will"),
        shows("311:MQTT-3.1.2-13", "311:MQTT-3.1.2-11")(
            f"{MQTT4} 12 00 00 00 01 'a'", V4, "set without a will"
        ),
        shows("311:MQTT-3.1.2-15", "311:MQTT-3.1.2-11")(
            f"{MQTT4} 22 00 00 00 01 'a'", V4, "set without a will"
        ),
        shows("311:MQTT-3.1.2-22")(
            f"{MQTT4} 42 00 00 00 01 'a' 00 01 'p'", V4, "a password without a user name"
        ),
        (f"{MQTT3} 42 00 00 00 01 'a' 00 01 'p'", V3, "a password without a user name"),
        shows("MQTT-3.1.2-9")(f"{MQTT5} 06 00 00 00 00 01 'a' 00", V5, "will topic needs 2 bytes"),
        shows("311:MQTT-3.1.2-9")(
            f"{MQTT4} 06 00 00 00 01 'a' 00 01 't'", V4, "will payload needs 2 bytes"
        ),
        shows("MQTT-3.1.2-17")(f"{MQTT5} 82 00 00 00 00 01 'a'", V5, "user name needs 2 bytes"),
        shows("311:MQTT-3.1.2-19")(f"{MQTT4} 82 00 00 00 01 'a'", V4, "user name needs 2 bytes"),
        shows("MQTT-3.1.2-19")(
            f"{MQTT5} C2 00 00 00 00 01 'a' 00 01 'u'", V5, "password needs 2 bytes"
        ),
        shows("311:MQTT-3.1.2-21")(
            f"{MQTT4} C2 00 00 00 01 'a' 00 01 'u' 00", V4, "password needs 2 bytes"
        ),
        shows("MQTT-3.1.2-16", "MQTT-3.1.2-18")(
            f"{MQTT5} 02 00 00 00 00 01 'a' 00 01 'u'", V5, "3 bytes too many"
        ),
        shows("311:MQTT-3.1.2-18", "311:MQTT-3.1.2-20")(
            f"{MQTT4} 02 00 00 00 01 'a' 00", V4, "1 bytes too many"
        ),
        shows("MQTT-3.1.3-3")(f"{MQTT5} 02 00 00 00", V5, "client identifier needs 2 bytes"),
        shows("311:MQTT-3.1.3-3")(f"{MQTT4} 02 00 00", V4, "client identifier needs 2 bytes"),
        shows("MQTT-3.1.3-4")(
            f"{MQTT5} 02 00 00 00 00 01 FF", V5, "client identifier is not UTF-8"
        ),
        shows("311:MQTT-3.1.3-4")(
            f"{MQTT4} 02 00 00 00 01 00", V4, "client identifier contains U+0000"
        ),
        shows("MQTT-3.1.3-11")(
            f"{MQTT5} 06 00 00 00 00 01 'a' 00 00 01 FF 00 00", V5, "will topic is not UTF-8"
        ),
        shows("311:MQTT-3.1.3-10")(
            f"{MQTT4} 06 00 00 00 01 'a' 00 01 FF 00 00", V4, "will topic is not UTF-8"
        ),
        (f"{MQTT5} 06 00 00 00 00 01 'a' 00 00 01 '#' 00 00", V5, "will topic contains a wildcard"),
        (f"{MQTT4} 06 00 00 00 01 'a' 00 00 00 00", V4, "will topic is empty"),
        (
            f"{MQTT5} 06 00 00 00 00 01 'a' 04 08 00 01 '+' 00 01 't' 00 00",
            V5,
            "will: property response topic contains a wildcard",
        ),
        shows("MQTT-3.1.3-12")(
            f"{MQTT5} 82 00 00 00 00 01 'a' 00 01 FF", V5, "user name is not UTF-8"
        ),
        shows("311:MQTT-3.1.3-11")(
            f"{MQTT4} 82 00 00 00 01 'a' 00 01 FF", V4, "user name is not UTF-8"
        ),
        (f"{MQTT5} 02 00 00 02 23 00 00 00", V5, "property topic alias is not allowed here"),
        (
            f"{MQTT5} 06 00 00 00 00 00 03 21 00 01 00 01 't' 00 00",
            V5,
            "property receive maximum is not allowed here",
        ),
    ],
)
def test_malformed(body: str, version: Version, words: str) -> None:
    error = error_for(body)
    assert type(error) is MalformedPacket
    assert error.version is version
    assert words in str(error)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{MQTT5} 02 00 00 03 21 00 00 00 01 'a'", "receive maximum must not be 0"),
        (f"{MQTT5} 02 00 00 05 27 00 00 00 00 00 01 'a'", "maximum packet size must not be 0"),
        (f"{MQTT5} 02 00 00 02 17 02 00 01 'a'", "request problem information must not be 2"),
        (f"{MQTT5} 02 00 00 02 19 FF 00 01 'a'", "request response information must not be 255"),
        (
            f"{MQTT5} 02 00 00 0A 11 00 00 00 01 11 00 00 00 01 00 01 'a'",
            "session expiry interval is given twice",
        ),
        (
            f"{MQTT5} 02 00 00 04 16 00 01 'd' 00 01 'a'",
            "authentication data without an authentication method",
        ),
    ],
)
@pytest.mark.mqtt("MQTT-3.1.4-1")
def test_values_that_are_not_allowed(body: str, words: str) -> None:
    error = error_for(body)
    assert type(error) is ProtocolError
    assert (error.code, error.version) == (R.PROTOCOL_ERROR, V5)
    assert words in str(error)


@pytest.mark.parametrize(
    ("name_and_level", "answer_in"),
    [
        pytest.param("00 04 'MQTT' 06", V5, marks=pytest.mark.mqtt("MQTT-3.1.2-2")),
        pytest.param("00 04 'MQTT' 00", V4, marks=pytest.mark.mqtt("311:MQTT-3.1.2-2")),
        pytest.param("00 04 'MQTT' 03", V4, marks=pytest.mark.mqtt("311:MQTT-3.1.2-2")),
        ("00 04 'MQTT' 85", V5),
        ("00 04 'MQTT' 83", V5),
        ("00 06 'MQIsdp' 84", V3),
        ("00 06 'MQIsdp' 04", V3),
        pytest.param(
            "00 04 'mqtt' 05", None, marks=pytest.mark.mqtt("MQTT-3.1.2-1", "311:MQTT-3.1.2-1")
        ),
        ("00 00 05", None),
    ],
)
def test_a_protocol_that_is_not_spoken(name_and_level: str, answer_in: Version | None) -> None:
    """An unknown protocol name gets no answer. An unknown level gets a CONNACK in the nearest
    version, which the client can probably read.
    """
    error = error_for(f"{name_and_level} 02 00 00 00 00 01 'a'")
    assert error.code is R.UNSUPPORTED_PROTOCOL_VERSION
    assert error.version is answer_in
    assert "is not supported" in str(error)


@pytest.mark.parametrize(
    ("body", "version"),
    [
        shows("311:MQTT-3.1.3-8", "311:MQTT-3.1.3-7")(f"{MQTT4} 00 00 00 00 00", V4),
        (f"{MQTT3} 02 00 00 00 00", V3),
    ],
)
def test_client_identifiers_that_are_not_allowed(body: str, version: Version) -> None:
    error = error_for(body)
    assert (error.code, error.version) == (R.CLIENT_IDENTIFIER_NOT_VALID, version)


@pytest.mark.parametrize(
    ("body", "client_id"),
    [
        (f"{MQTT4} 02 00 00 00 00", ""),
        (f"{MQTT5} 00 00 00 00 00 00", ""),
        shows("311:MQTT-3.1.3-5")(
            f"{MQTT4} 00 00 00 00 17 '0123456789abcdefghijklm'", "0123456789abcdefghijklm"
        ),
        shows("MQTT-3.1.3-5")(
            f"{MQTT5} 00 00 00 00 00 17 'nopqrstuvwxyzABCDEFGHIJ'", "nopqrstuvwxyzABCDEFGHIJ"
        ),
        (f"{MQTT3} 00 00 00 00 17 'KLMNOPQRSTUVWXYZ0123456'", "KLMNOPQRSTUVWXYZ0123456"),
        (f"{MQTT3} 02 00 00 00 18 '123456789012345678901234'", "123456789012345678901234"),
        (
            f"{MQTT4} 00 00 00 00 20 '01234567890123456789012345678901'",
            "01234567890123456789012345678901",
        ),
    ],
)
def test_client_identifiers_that_are_allowed(body: str, client_id: str) -> None:
    (packet,) = stream_with(body)
    assert isinstance(packet, Connect)
    assert packet.client_id == client_id


def test_mqtt_3_1_allows_flags_of_a_missing_user_name() -> None:
    """MQTT 3.1, section 3.1: if the packet ends before the user name, its flag does not count."""
    (packet,) = stream_with(f"{MQTT3} C2 00 00 00 01 'a'")
    assert isinstance(packet, Connect)
    assert (packet.username, packet.password) == (None, None)


@pytest.mark.mqtt("MQTT-3.1.0-1", "311:MQTT-3.1.0-1")
@pytest.mark.parametrize("data", ["30", "C0 00", "E0 00", "00", "20 02 00 00", "F0 00"])
def test_the_first_packet_is_connect(data: str) -> None:
    """The decoder refuses another packet at its first byte, without waiting for the rest."""
    stream = PacketStream(100)
    stream.feed(from_hex(data))
    with pytest.raises(ProtocolError, match="first packet is not CONNECT") as caught:
        list(stream)
    assert caught.value.version is None


@pytest.mark.mqtt("MQTT-3.1.0-2", "311:MQTT-3.1.0-2")
def test_a_second_connect_is_refused() -> None:
    connect = from_hex(f"10 0D {MQTT4} 02 00 00 00 01 'a'")
    stream = PacketStream(100)
    stream.feed(connect + connect)
    packets = iter(stream)
    assert isinstance(next(packets), Connect)
    with pytest.raises(ProtocolError, match="CONNECT: sent a second time"):
        next(packets)


def test_secrets_stay_out_of_texts() -> None:
    (packet,) = stream_with(
        f"{MQTT5} C2 00 00 08 15 00 01 'm' 16 00 01 'd' 00 01 'a' 00 01 'u' 00 06 'secret'"
    )
    assert "secret" not in repr(packet)
    assert "AUTHENTICATION_DATA" not in repr(packet)
    assert "'u'" in repr(packet)


def test_a_stream_of_server_packets_needs_the_version() -> None:
    with pytest.raises(ValueError, match="without the MQTT version"):
        PacketStream(100, None, Side.SERVER)


@pytest.mark.parametrize(
    ("body", "version"),
    [("00 06 'MQIsdp' 83 02 00 00 00 01 'b'", V3), ("00 04 'MQTT' 84 02 00 00 00 01 'b'", V4)],
)
def test_bridge_is_recognised_by_its_protocol_level(body: str, version: Version) -> None:
    (packet,) = stream_with(body)
    assert packet == Connect("b", version, bridge=True)
    assert encode(packet, version)[2:] == from_hex(body)
    with pytest.raises(ValueError, match="bridge"):
        encode(Connect("b", V5, bridge=True), V5)
