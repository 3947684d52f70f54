"""What a peer did wrong, as an exception that knows the reason code to answer with.

Both classes say what and where, e.g. `SUBSCRIBE: packet identifier is 0`. Nothing else leaves the
decoder, whatever bytes come in.
"""

from gateway.mqtt.reason import ReasonCode

_LONGEST_QUOTE = 60


def quote(text: str) -> str:
    """What a peer sent, fit for an error text and a log line: escaped, and not longer than a
    line.
    """
    return repr(text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…")


class MqttError(Exception):
    """The peer broke the protocol: the Network Connection has to be closed [MQTT-4.13.1-1].

    code: reason code for DISCONNECT, or for CONNACK when a CONNECT was at fault. version: protocol
    level of the faulty CONNECT, if it could be read; None for every other packet.
    """

    def __init__(self, text: str, code: ReasonCode, version: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.version = version


class MalformedPacket(MqttError):
    """The bytes cannot be read as the packet that they claim to be (MQTT 5, section 1.2)."""

    def __init__(self, text: str, version: int | None = None) -> None:
        super().__init__(text, ReasonCode.MALFORMED_PACKET, version)


class ProtocolError(MqttError):
    """The packet can be read, and is not allowed here, or holds a value that is not allowed (MQTT
    5, section 1.2).
    """

    def __init__(
        self, text: str, code: ReasonCode = ReasonCode.PROTOCOL_ERROR, version: int | None = None
    ) -> None:
        super().__init__(text, code, version)
