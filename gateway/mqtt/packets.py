"""The control packets of MQTT as plain data, with the same classes for 5.0, 3.1.1 and 3.1 and for
both directions.

`decode` and `PacketStream` return these packets, and `encode` accepts them. Fields that a version
lacks keep their defaults: `properties` is None, and `reason` is the MQTT 5 code that means the same
as the older packet.
"""

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from gateway.mqtt.properties import Properties
from gateway.mqtt.reason import ReasonCode


class Version(IntEnum):
    """Protocol level in the CONNECT packet."""

    V3_1 = 3
    V3_1_1 = 4
    V5 = 5


class Side(Enum):
    """The side that sends a packet."""

    CLIENT = "client"
    SERVER = "server"


class PacketType(IntEnum):
    """The high four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(slots=True)
class Will:
    """The Application Message that the server publishes if the connection ends without a DISCONNECT
    that deletes it.
    """

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties | None = None


@dataclass(slots=True)
class Connect:
    """CONNECT. keep_alive: in seconds, 0 = off. `clean_start` is Clean Session in 3.1.1 and 3.1."""

    client_id: str
    version: Version = Version.V5
    clean_start: bool = True
    keep_alive: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    properties: Properties | None = field(default=None, repr=False)
    bridge: bool = False
    """Whether the client is a bridge of another broker; always False in MQTT 5. A bridge does not
    get its own messages back, and gets RETAIN as published. In MQTT 5, the subscription options No
    Local and Retain As Published do the same.
    """


@dataclass(slots=True)
class Connack:
    session_present: bool = False
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = field(default=None, repr=False)


@dataclass(slots=True)
class Publish:
    """PUBLISH. packet_id is 0 exactly if qos is 0. topic is empty if `properties` has a topic alias
    in its place.
    """

    topic: str
    payload: bytes = b""
    qos: int = 0
    packet_id: int = 0
    retain: bool = False
    dup: bool = False
    properties: Properties | None = None


@dataclass(slots=True)
class Puback:
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


@dataclass(slots=True)
class Pubrec:
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


@dataclass(slots=True)
class Pubrel:
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


@dataclass(slots=True)
class Pubcomp:
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = None


@dataclass(slots=True)
class Subscription:
    """A Topic Filter of a SUBSCRIBE with its options. retain_handling: 0 send retained messages, 1
    only if the subscription is new, 2 never.
    """

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe:
    packet_id: int
    subscriptions: list[Subscription]
    properties: Properties | None = None


@dataclass(slots=True)
class Suback:
    """SUBACK. One reason per subscription, in order."""

    packet_id: int
    reasons: list[ReasonCode]
    properties: Properties | None = None


@dataclass(slots=True)
class Unsubscribe:
    packet_id: int
    topic_filters: list[str]
    properties: Properties | None = None


@dataclass(slots=True)
class Unsuback:
    """UNSUBACK. One reason per topic filter, in order; none in 3.1.1 and 3.1."""

    packet_id: int
    reasons: list[ReasonCode] = field(default_factory=list)
    properties: Properties | None = None


@dataclass(slots=True)
class Pingreq:
    pass


@dataclass(slots=True)
class Pingresp:
    pass


@dataclass(slots=True)
class Disconnect:
    """DISCONNECT. In MQTT 3.1.1 and 3.1, only a client sends it, and it has no reason code."""

    reason: ReasonCode = ReasonCode.NORMAL_DISCONNECTION
    properties: Properties | None = None


@dataclass(slots=True)
class Auth:
    """AUTH, in MQTT 5 only."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties | None = field(default=None, repr=False)


Ack = Puback | Pubrec | Pubrel | Pubcomp
Packet = (
    Connect
    | Connack
    | Publish
    | Ack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
