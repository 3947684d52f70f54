"""The client's packet reader gets the same packets as the gateway's decoder, and both accept or
refuse the same ones.

Two differences are allowed. The client may refuse properties that only answer requests that it
never makes. It does not check whether a reason code is allowed in its packet.
"""

import ctypes
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from gateway.mqtt.decode import decode
from gateway.mqtt.errors import MqttError
from gateway.mqtt.packets import Packet, PacketType, Side, Suback, Unsuback, Version
from gateway.mqtt.properties import PropertyId, encode_properties

SOURCES = Path(__file__).parents[2] / "firmware" / "src"
NOT_ASKED_FOR = {
    PropertyId.TOPIC_ALIAS,
    PropertyId.SUBSCRIPTION_IDENTIFIER,
    PropertyId.AUTHENTICATION_METHOD,
    PropertyId.AUTHENTICATION_DATA,
    PropertyId.RESPONSE_INFORMATION,
}
NOT_LOOKED_AT = "reason code 0x"
VALUES: dict[int, object] = {
    **dict.fromkeys(PropertyId, 1),
    **dict.fromkeys((3, 8, 18, 21, 26, 28, 31), "t"),
    **dict.fromkeys((9, 22), b"t"),
    PropertyId.USER_PROPERTY: [("t", "t")],
    PropertyId.SUBSCRIPTION_IDENTIFIER: [300],
}
PROPERTIES = [encode_properties({identifier: VALUES[identifier]})[1:] for identifier in PropertyId]
"""Each property of MQTT 5, encoded."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("reader") / "reader.so"
    files = [SOURCES / f"ow_{name}.c" for name in ("packet_read", "bytes")]
    subprocess.run(
        [
            "gcc",
            "-std=c11",
            "-O1",
            "-shared",
            "-fPIC",
            "-fshort-enums",
            f"-I{SOURCES}",
            "-o",
            library,
            *files,
        ],
        check=True,
    )
    loaded = ctypes.CDLL(str(library))
    for name in ("connack", "publish", "ack"):
        getattr(loaded, f"ow_read_{name}").restype = ctypes.c_uint8
    return loaded


def refusal(client: ctypes.CDLL, first: int, body: bytes) -> int:
    """Return the reason code with which the client refuses a packet, or 0 if it accepts the packet.
    first: first byte of the packet.
    """
    room = ctypes.create_string_buffer(64)
    match PacketType(first >> 4):
        case PacketType.CONNACK:
            return int(client.ow_read_connack(body, len(body), room))
        case PacketType.PUBLISH:
            return int(
                client.ow_read_publish(
                    first & 15, body, len(body), room, ctypes.byref(ctypes.c_uint16())
                )
            )
        case kind:
            return int(
                client.ow_read_ack(
                    kind,
                    body,
                    len(body),
                    ctypes.byref(ctypes.c_uint16()),
                    ctypes.byref(ctypes.c_uint8()),
                )
            )


def knows_better(packet: Packet) -> bool:
    """Return whether the client may refuse a packet that the gateway accepts. This holds for a
    packet with a property that the client never asks for, and for an answer to a request with
    several filters.
    """
    properties = getattr(packet, "properties", None) or {}
    return bool(NOT_ASKED_FOR & properties.keys()) or (
        isinstance(packet, Suback | Unsuback) and len(packet.reasons) != 1
    )


def bodies(properties: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield one packet of each type with these properties, as first byte and body."""
    block = bytes([len(properties)]) + properties
    yield 0x20, b"\x00\x00" + block
    yield 0x20, b"\x01\x00" + block
    for flags in (0, 2, 6, 8, 13):
        identifier = b"\x12\x34" if flags & 6 else b""
        yield 0x30 | flags, b"\x00\x01t" + identifier + block + b"payload"
    for kind in (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP):
        yield kind << 4 | (2 if kind is PacketType.PUBREL else 0), b"\x12\x34\x00" + block
    yield 0x90, b"\x12\x34" + block + b"\x02"
    yield 0xB0, b"\x12\x34" + block + b"\x00"


def damaged(body: bytes) -> Iterator[bytes]:
    """Yield the body truncated at each length, with one more byte, and with each byte changed."""
    yield from (body[:length] for length in range(len(body)))
    yield body + b"\x00"
    for at, byte in enumerate(body):
        for value in {
            0,
            1,
            2,
            ord("+"),
            ord("#"),
            0x7F,
            0x80,
            0xFF,
            (byte + 1) & 0xFF,
            byte - 1 & 0xFF,
        }:
            yield body[:at] + bytes([value]) + body[at + 1 :]


def verdict(first: int, body: bytes) -> Packet | MqttError:
    """Return the packet that the gateway's decoder reads, or its error."""
    try:
        return decode(first, body, Version.V5, Side.SERVER)
    except MqttError as error:
        return error


def check(client: ctypes.CDLL, first: int, body: bytes) -> bool:
    """Check that client and gateway agree about a packet. Return whether the client accepts it."""
    code = refusal(client, first, body)
    theirs = verdict(first, body)
    if isinstance(theirs, MqttError):
        assert code or NOT_LOOKED_AT in str(theirs), (
            f"{first:02x} {body.hex(' ')} is taken; the gateway: {theirs}"
        )
    else:
        assert not code or knows_better(theirs), (
            f"{first:02x} {body.hex(' ')} is refused with 0x{code:02x}"
        )
    return not code


def test_alone_and_in_pairs_properties_stand_where_they_may(client: ctypes.CDLL) -> None:
    blocks = [b"", *PROPERTIES, *(one + other for one, other in product(PROPERTIES, repeat=2))]
    taken = sum(check(client, *packet) for block in blocks for packet in bodies(block))
    assert taken > 500


def test_damaged_packets(client: ctypes.CDLL) -> None:
    packets = [packet for block in (b"", *PROPERTIES) for packet in bodies(block)]
    taken = sum(check(client, first, body) for first, whole in packets for body in damaged(whole))
    assert taken > 3000


def test_strings(client: ctypes.CDLL) -> None:
    """[MQTT-1.5.4-1], [MQTT-1.5.4-2]: the test tries all sequences of one to three bytes from the
    limits of UTF-8's byte ranges. It also tries sequences of four bytes that begin like a character
    of four bytes.
    """
    edges = bytes.fromhex(
        "00 61 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff"
    )
    three = (bytes(text) for length in range(1, 4) for text in product(edges, repeat=length))
    four = (
        bytes(text)
        for text in product(
            b"\xf0\xf1\xf3\xf4\xf5", edges, b"\x7f\x80\xbf\xc0", b"\x7f\x80\xbf\xc0"
        )
    )
    taken = sum(
        check(client, 0x30, len(text).to_bytes(2) + text + b"\x00") for text in (*three, *four)
    )
    assert taken > 50
