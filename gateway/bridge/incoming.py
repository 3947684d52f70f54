"""A byte stream of the other broker, cut into packets.

In: bytes. Out: packets, and an `Unusable` for a PUBLISH that this gateway can never accept. A
PUBLISH is unusable if its content breaks a rule, or if it is larger than the limit of this gateway.
Its frame is intact, so the packets after it can be read. The other broker keeps such a message and
sends it again on each connection, so ending the connection would stop the bridge for good.

Of a PUBLISH that is too large, only its topic and packet identifier are kept.
"""

from dataclasses import dataclass
from typing import Any

from gateway.mqtt.errors import MqttError, ProtocolError
from gateway.mqtt.packets import Packet, PacketType, Publish, Side, Version
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.runs import MAXIMUM, Acks, Publishes
from gateway.mqtt.stream import PacketStream, packet_bounds
from gateway.mqtt.topics import topic_name_problem
from gateway.mqtt.wire import MAX_PACKET, MAX_U16

_HEAD = 2 + MAX_U16 + 2
"""Largest number of bytes of topic and packet identifier at the start of a PUBLISH's body."""


@dataclass(slots=True)
class Unusable(Publish):
    """A PUBLISH that this gateway can never accept. reason: the answer, a code that PUBACK may
    carry. why: the broken rule, in words. topic: the part that can be read.
    """

    reason: ReasonCode = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    why: str = ""


class IncomingStream(PacketStream):
    """The packet stream of the other broker. maximum: bytes of the largest packet accepted."""

    __slots__ = ("_error", "_first", "_head", "_missing")

    def __init__(self, maximum: int) -> None:
        super().__init__(maximum, Version.V5, Side.SERVER, lenient=True)
        self._error: MqttError | None = None
        """Error of the PUBLISH that is being skipped, None while no packet is skipped."""
        self._first = 0
        self._head = b""
        """Beginning of the skipped packet's body."""
        self._missing = 0
        """Bytes of the skipped packet's body that have not arrived."""

    def take(self, most: int = MAXIMUM) -> Packet | Publishes[Any] | Acks | None:
        if self._error is None:
            begun = len(self._begun)
            try:
                return super().take(most)
            except ProtocolError as error:
                if error.code != ReasonCode.PACKET_TOO_LARGE:
                    raise
                self._begin_to_skip(error, begun)
        return self._skip()

    def _begin_to_skip(self, error: ProtocolError, begun: int) -> None:
        """Begin to skip the next packet, a PUBLISH that is too large. If the packet is of another
        type, raise the error. begun: bytes of the packet that had arrived before.
        """
        if self._begun:  # holds the first bytes of the packet's header
            rest = self.fresh[self._at + len(self._begun) - begun :]
            self.fresh, self._at, self._need = bytes(self._begun) + rest, 0, 0
            self._begun.clear()
        self._first = self.fresh[self._at]
        if self._first >> 4 != PacketType.PUBLISH:
            raise error
        body, end = packet_bounds(self.fresh, self._at, MAX_PACKET)
        self._go_on_from(body)
        self._error, self._head, self._missing = error, b"", end - body

    def _skip(self) -> Unusable | None:
        """Drop bytes of the skipped packet. When its last byte has arrived, return its readable
        parts; until then, return None.
        """
        data = self.fresh[self._at : self._at + self._missing]
        self._go_on_from(self._at + len(data))
        self._missing -= len(data)
        self._head += data[: _HEAD - len(self._head)]
        error, head = self._error, self._head
        if error is None or self._missing:
            return None
        self._error, self._head = None, b""
        return _unusable(self._first, head, error)

    def _decode(self, first: int, body: bytes) -> Packet:
        try:
            return super()._decode(first, body)
        except MqttError as error:
            if first >> 4 != PacketType.PUBLISH:
                raise
            return _unusable(first, body, error)


def _unusable(first: int, body: bytes, error: MqttError) -> Unusable:
    """Return the readable parts of a PUBLISH that cannot be decoded. If its QoS or packet
    identifier is invalid, it cannot be answered, and counts as QoS 0.
    """
    qos, at = first >> 1 & 3, 2 + int.from_bytes(body[:2], "big")
    topic, number = body[2:at], body[at : at + 2]
    identifier = int.from_bytes(number, "big") if qos and len(number) == 2 else 0
    if qos == 3 or not identifier:
        qos = identifier = 0
    name = topic.decode(errors="replace")
    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    if name.encode() != topic or (name and topic_name_problem(name) is not None):
        reason = ReasonCode.TOPIC_NAME_INVALID
    return Unusable(name, b"", qos, identifier, bool(first & 1), reason=reason, why=str(error))
