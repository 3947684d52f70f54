"""The first MQTT session of a board that is added: a command for it, and its acknowledgement.

In: bytes of a session of the reliable link. Out: the command on `commands/NAME`, once the board has
subscribed to that topic, and whether the board acknowledged it. This module does not acknowledge
publications of the board, so they stay in its journal for the gateway.
"""

import asyncio

from gateway.links.transport import Transport
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MalformedPacket, ProtocolError
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Version,
)
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.stream import PacketStream

_LONGEST = 1024
_PACKET_ID = 1
_QOS = {0: ReasonCode.SUCCESS, 1: ReasonCode.GRANTED_QOS_1, 2: ReasonCode.GRANTED_QOS_2}


class FirstSession:
    """The server's end of the board's first session. obeyed: set when the board has acknowledged
    the command.
    """

    def __init__(
        self, transport: Transport, name: str, command: str, obeyed: asyncio.Future[None]
    ) -> None:
        self._transport = transport
        self._topic = f"commands/{name}"
        self._command = command.encode()
        self._obeyed = obeyed
        self._stream = PacketStream(_LONGEST)

    def receive(self, data: bytes) -> None:
        self._stream.feed(data)
        try:
            for packet in self._stream:
                self._take(packet)
        except (MalformedPacket, ProtocolError):
            self._transport.close()  # the board will connect again

    def lost(self, reason: str) -> None: ...

    def writable(self) -> None: ...

    def _take(self, packet: Packet) -> None:
        match packet:
            case Connect():
                self._send(Connack())
            case Subscribe():
                self._send(
                    Suback(packet.packet_id, [_QOS[one.qos] for one in packet.subscriptions])
                )
                if any(one.topic_filter == self._topic for one in packet.subscriptions):
                    self._send(Publish(self._topic, self._command, 1, _PACKET_ID))
            case Puback(packet_id=number) if number == _PACKET_ID and not self._obeyed.done():
                self._obeyed.set_result(None)
            case Pingreq():
                self._send(Pingresp())
            case _:
                pass

    def _send(self, packet: Packet) -> None:
        self._transport.write(encode(packet, self._stream.version or Version.V5))
