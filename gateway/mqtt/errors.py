"""Errors of a peer, as exceptions with the reason code to answer.

The text of an error names the packet and the cause, e.g. `SUBSCRIBE: packet identifier is 0`. The
decoder raises no other exception, whatever bytes it gets.
"""

from gateway.mqtt.reason import ReasonCode

_LONGEST_QUOTE = 60


def quote(text: str) -> str:
    """Return a peer's text for an error or a log line: escaped, and cut after 60 characters."""
    return repr(text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…")


class MqttError(Exception):
    """Base of the errors of a peer that broke the protocol: the Network Connection must be closed
    [MQTT-4.13.1-1]. code: reason code for DISCONNECT, or for CONNACK if a CONNECT was at fault.
    version: protocol level of the faulty CONNECT, if it could be read; None for every other packet.
    """

    def __init__(self, text: str, code: ReasonCode, version: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.version = version


class MalformedPacket(MqttError):
    """The bytes cannot be decoded as the packet type that they claim (MQTT 5, section 1.2)."""

    def __init__(self, text: str, version: int | None = None) -> None:
        super().__init__(text, ReasonCode.MALFORMED_PACKET, version)


class ProtocolError(MqttError):
    """The packet can be decoded, but it, or one of its values, is not allowed here (MQTT 5, section
    1.2).
    """

    def __init__(
        self, text: str, code: ReasonCode = ReasonCode.PROTOCOL_ERROR, version: int | None = None
    ) -> None:
        super().__init__(text, code, version)
