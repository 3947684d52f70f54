"""Example packets with their encoded bytes: one for each form of each packet in the standards.

Bytes are written in hex, with spaces. Text in quotes stands for its UTF-8 bytes. `Example.packet`
is the decoded packet.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from gateway.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
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

CLIENT, SERVER = Side.CLIENT, Side.SERVER
V3, V4, V5 = Version.V3_1, Version.V3_1_1, Version.V5


def from_hex(text: str) -> bytes:
    """Return the bytes of a text like `30 03 'a/b'`: hex, and UTF-8 text in quotes."""
    return b"".join(
        part[1:-1].encode() if part.startswith("'") else bytes.fromhex(part)
        for part in re.findall(r"'[^']*'|[0-9A-Fa-f]{2}", text)
    )


def shows(*statements: str) -> Callable[..., Any]:
    """Return a variant of `pytest.param` for a test case that shows these statements of the
    standard.
    """
    return partial(pytest.param, marks=pytest.mark.mqtt(*statements))


@dataclass(frozen=True)
class Example:
    version: Version
    sender: Side
    text: str
    packet: Packet

    @property
    def data(self) -> bytes:
        return from_hex(self.text)

    def __str__(self) -> str:
        return f"{type(self.packet).__name__}-{self.version}-{self.text[:24].replace(' ', '')}"


EXAMPLES = [
    # CONNECT
    Example(V5, CLIENT, "10 0D 00 04 'MQTT' 05 02 00 00 00 00 00", Connect("")),
    Example(
        V4, CLIENT, "10 0D 00 04 'MQTT' 04 02 00 3C 00 01 'a'", Connect("a", V4, keep_alive=60)
    ),
    Example(
        V3,
        CLIENT,
        "10 0F 00 06 'MQIsdp' 03 00 00 3C 00 01 'a'",
        Connect("a", V3, clean_start=False, keep_alive=60),
    ),
    Example(
        V4,
        CLIENT,
        "10 1E 00 04 'MQTT' 04 EE 00 0A 00 01 'a' 00 03 'w/t' 00 02 'by' 00 02 'me' 00 02 FF 00",
        Connect("a", V4, True, 10, Will("w/t", b"by", 1, True), "me", b"\xff\x00"),
    ),
    Example(
        V5,
        CLIENT,
        "10 35 00 04 'MQTT' 05 F4 00 0A 0B 11 00 00 00 3C 21 00 01 22 00 10 00 01 'a'"
        " 0C 18 00 00 00 05 26 00 01 'k' 00 01 'v' 00 03 'w/t' 00 00 00 02 'me' 00 02 FF 00",
        Connect(
            "a",
            V5,
            False,
            10,
            Will("w/t", b"", 2, True, {P.WILL_DELAY_INTERVAL: 5, P.USER_PROPERTY: [("k", "v")]}),
            "me",
            b"\xff\x00",
            {P.SESSION_EXPIRY_INTERVAL: 60, P.RECEIVE_MAXIMUM: 1, P.TOPIC_ALIAS_MAXIMUM: 16},
        ),
    ),
    Example(
        V5, CLIENT, "10 10 00 04 'MQTT' 05 42 00 00 00 00 00 00 01 'p'", Connect("", password=b"p")
    ),
    # CONNACK
    Example(V5, SERVER, "20 03 00 00 00", Connack()),
    Example(V5, SERVER, "20 03 01 00 00", Connack(True)),
    Example(
        V5,
        SERVER,
        "20 12 00 00 0F 12 00 02 'ab' 13 00 1E 21 00 0A 24 01 2A 00",
        Connack(
            properties={
                P.ASSIGNED_CLIENT_IDENTIFIER: "ab",
                P.SERVER_KEEP_ALIVE: 30,
                P.RECEIVE_MAXIMUM: 10,
                P.MAXIMUM_QOS: 1,
                P.SHARED_SUBSCRIPTION_AVAILABLE: 0,
            }
        ),
    ),
    Example(V5, SERVER, "20 03 00 87 00", Connack(False, R.NOT_AUTHORIZED)),
    Example(V4, SERVER, "20 02 01 00", Connack(True)),
    Example(V4, SERVER, "20 02 00 04", Connack(False, R.BAD_USER_NAME_OR_PASSWORD)),
    Example(V3, SERVER, "20 02 00 02", Connack(False, R.CLIENT_IDENTIFIER_NOT_VALID)),
    # PUBLISH
    Example(V4, CLIENT, "30 03 00 01 'a'", Publish("a")),
    Example(V5, CLIENT, "30 07 00 03 'a/b' 00 'x'", Publish("a/b", b"x")),
    Example(V5, CLIENT, "31 07 00 03 'a/b' 00 'x'", Publish("a/b", b"x", retain=True)),
    Example(V4, CLIENT, "32 08 00 03 'a/b' 00 07 'x'", Publish("a/b", b"x", 1, 7)),
    Example(V4, SERVER, "3B 08 00 03 'a/b' FF FF 'x'", Publish("a/b", b"x", 1, 65535, True, True)),
    Example(V5, CLIENT, "3C 09 00 03 'a/b' 01 00 00 'x'", Publish("a/b", b"x", 2, 256, dup=True)),
    Example(
        V5,
        CLIENT,
        "34 0A 00 00 00 07 03 23 00 05 'xy'",
        Publish("", b"xy", 2, 7, properties={P.TOPIC_ALIAS: 5}),
    ),
    Example(
        V5,
        SERVER,
        "32 26 00 01 'a' 00 07 1F 01 01 02 00 00 00 0A 03 00 01 't' 08 00 01 'r' 09 00 02 00 FF 0B"
        " 80 01 0B 05 26 00 01 'k' 00 00 'x'",
        Publish(
            "a",
            b"x",
            1,
            7,
            properties={
                P.PAYLOAD_FORMAT_INDICATOR: 1,
                P.MESSAGE_EXPIRY_INTERVAL: 10,
                P.CONTENT_TYPE: "t",
                P.RESPONSE_TOPIC: "r",
                P.CORRELATION_DATA: b"\x00\xff",
                P.SUBSCRIPTION_IDENTIFIER: [128, 5],
                P.USER_PROPERTY: [("k", "")],
            },
        ),
    ),
    # PUBACK, PUBREC, PUBREL, PUBCOMP
    Example(V4, CLIENT, "40 02 00 07", Puback(7)),
    Example(V4, CLIENT, "50 02 00 07", Pubrec(7)),
    Example(V4, CLIENT, "62 02 00 07", Pubrel(7)),
    Example(V4, CLIENT, "70 02 00 07", Pubcomp(7)),
    Example(V5, SERVER, "40 03 00 07 10", Puback(7, R.NO_MATCHING_SUBSCRIBERS)),
    Example(V5, SERVER, "50 03 00 07 97", Pubrec(7, R.QUOTA_EXCEEDED)),
    Example(V5, SERVER, "62 03 00 07 92", Pubrel(7, R.PACKET_IDENTIFIER_NOT_FOUND)),
    Example(
        V5,
        SERVER,
        "70 09 00 07 92 05 1F 00 02 'no'",
        Pubcomp(7, R.PACKET_IDENTIFIER_NOT_FOUND, {P.REASON_STRING: "no"}),
    ),
    Example(
        V5,
        SERVER,
        "40 0B 00 07 00 07 26 00 01 'k' 00 01 'v'",
        Puback(7, properties={P.USER_PROPERTY: [("k", "v")]}),
    ),
    # SUBSCRIBE, SUBACK
    Example(V4, CLIENT, "82 08 00 07 00 03 'a/#' 02", Subscribe(7, [Subscription("a/#", 2)])),
    Example(
        V4,
        CLIENT,
        "82 0A 00 07 00 01 '+' 00 00 01 'b' 01",
        Subscribe(7, [Subscription("+"), Subscription("b", 1)]),
    ),
    Example(
        V5,
        CLIENT,
        "82 07 00 07 00 00 01 'a' 2D",
        Subscribe(7, [Subscription("a", 1, True, True, 2)]),
    ),
    Example(
        V5,
        CLIENT,
        "82 12 00 07 02 0B 05 00 0A '$share/g/a' 18",
        Subscribe(
            7, [Subscription("$share/g/a", 0, False, True, 1)], {P.SUBSCRIPTION_IDENTIFIER: [5]}
        ),
    ),
    Example(V4, SERVER, "90 04 00 07 02 80", Suback(7, [R.GRANTED_QOS_2, R.UNSPECIFIED_ERROR])),
    Example(
        V5,
        SERVER,
        "90 06 00 07 00 00 8F 01",
        Suback(7, [R.GRANTED_QOS_0, R.TOPIC_FILTER_INVALID, R.GRANTED_QOS_1]),
    ),
    # UNSUBSCRIBE, UNSUBACK
    Example(V4, CLIENT, "A2 07 00 07 00 03 'a/#'", Unsubscribe(7, ["a/#"])),
    Example(
        V5,
        CLIENT,
        "A2 10 00 07 07 26 00 01 'k' 00 01 'v' 00 01 'a' 00 01 'b'",
        Unsubscribe(7, ["a", "b"], {P.USER_PROPERTY: [("k", "v")]}),
    ),
    Example(V4, SERVER, "B0 02 00 07", Unsuback(7)),
    Example(
        V5, SERVER, "B0 05 00 07 00 00 11", Unsuback(7, [R.SUCCESS, R.NO_SUBSCRIPTION_EXISTED])
    ),
    # PINGREQ, PINGRESP, DISCONNECT, AUTH
    Example(V4, CLIENT, "C0 00", Pingreq()),
    Example(V5, SERVER, "D0 00", Pingresp()),
    Example(V4, CLIENT, "E0 00", Disconnect()),
    Example(V5, CLIENT, "E0 00", Disconnect()),
    Example(
        V5,
        CLIENT,
        "E0 07 04 05 11 00 00 00 00",
        Disconnect(R.DISCONNECT_WITH_WILL, {P.SESSION_EXPIRY_INTERVAL: 0}),
    ),
    Example(V5, SERVER, "E0 02 8E 00", Disconnect(R.SESSION_TAKEN_OVER)),
    Example(
        V5,
        SERVER,
        "E0 07 9C 05 1C 00 02 'gw'",
        Disconnect(R.USE_ANOTHER_SERVER, {P.SERVER_REFERENCE: "gw"}),
    ),
    Example(V5, SERVER, "F0 00", Auth()),
    Example(
        V5,
        CLIENT,
        "F0 0A 18 08 15 00 01 'm' 16 00 01 'd'",
        Auth(
            R.CONTINUE_AUTHENTICATION, {P.AUTHENTICATION_METHOD: "m", P.AUTHENTICATION_DATA: b"d"}
        ),
    ),
]
