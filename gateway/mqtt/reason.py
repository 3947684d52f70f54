"""Reason codes: one set for all protocol versions.

In and out: a byte on the wire. The rest of the gateway uses MQTT 5 reason codes only; the return
codes of 3.1 and 3.1.1 are mapped here. Sources: MQTT 5.0 section 2.4 and the tables of each packet;
MQTT 3.1.1 sections 3.2.2.3 and 3.9.3.
"""

from enum import IntEnum


class ReasonCode(IntEnum):
    """All reason codes of MQTT 5. Values from 0x80 on are failures."""

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


def _codes(*values: int) -> frozenset[ReasonCode]:
    return frozenset(map(ReasonCode, values))


# Reason codes that each packet may carry: MQTT 5.0, tables 3-1, 3-4 to 3-10, 3-12 and section 2.4.
CONNACK_CODES = _codes(
    0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F
)
PUBLISH_ACK_CODES = _codes(0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
"""Reason codes of PUBACK and PUBREC."""
RELEASE_CODES = _codes(0x00, 0x92)
"""Reason codes of PUBREL and PUBCOMP."""
SUBACK_CODES = _codes(0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)
UNSUBACK_CODES = _codes(0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)
_DISCONNECT_BOTH = (0x00, 0x80, 0x81, 0x82, 0x83, 0x90, *range(0x93, 0x9A))
CLIENT_DISCONNECT_CODES = _codes(0x04, *_DISCONNECT_BOTH)
SERVER_DISCONNECT_CODES = _codes(
    0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, *range(0x9A, 0xA3), *_DISCONNECT_BOTH
)
CLIENT_AUTH_CODES = _codes(0x18, 0x19)
SERVER_AUTH_CODES = _codes(0x00, 0x18)

SUBACK_RETURN_CODES = _codes(0x00, 0x01, 0x02, 0x80)
"""The return codes that a SUBACK of 3.1.1 may carry."""

_CONNACK_RETURN_CODES = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.SERVER_UNAVAILABLE: 3,
    ReasonCode.SERVER_BUSY: 3,
    ReasonCode.QUOTA_EXCEEDED: 3,
    ReasonCode.USE_ANOTHER_SERVER: 3,
    ReasonCode.SERVER_MOVED: 3,
    ReasonCode.CONNECTION_RATE_EXCEEDED: 3,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
    ReasonCode.BAD_AUTHENTICATION_METHOD: 5,
}
_CONNACK_REASONS = (
    ReasonCode.SUCCESS,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
)


def nearest(value: int) -> ReasonCode:
    """Return a reason code for a byte from a peer that ignores the tables of the standard: an
    unknown failure becomes UNSPECIFIED_ERROR, and an unknown success becomes SUCCESS.
    """
    try:
        return ReasonCode(value)
    except ValueError:
        failed = value >= ReasonCode.UNSPECIFIED_ERROR
        return ReasonCode.UNSPECIFIED_ERROR if failed else ReasonCode.SUCCESS


def connack_return_code(reason: ReasonCode) -> int | None:
    """Return the 3.1.1 CONNACK return code for a reason. Return None if there is none: then the
    server closes the connection without a CONNACK [311:MQTT-3.2.2-6].
    """
    return _CONNACK_RETURN_CODES.get(reason)


def connack_reason(return_code: int) -> ReasonCode | None:
    """Return the reason for a 3.1.1 CONNACK return code, or None for a reserved one (6 to 255)."""
    return _CONNACK_REASONS[return_code] if return_code < len(_CONNACK_REASONS) else None
