"""An MQTT 5 server whose answers a test determines. It accepts what a publisher sends."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from gateway.config import IDENTITY
from gateway.mqtt.packets import (
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
    Unsuback,
    Unsubscribe,
    Version,
)
from gateway.mqtt.properties import Properties, PropertyId
from gateway.mqtt.reason import ReasonCode
from tests.service.wire import Wire

COUNTS: Properties = {PropertyId.USER_PROPERTY: [IDENTITY[True]]}
IGNORED: Properties = {PropertyId.USER_PROPERTY: [IDENTITY[False]]}
Identity = tuple[int, int]


def identity(packet: Publish) -> Identity:
    """Return incarnation and sequence of a message, or (0, 0) if it has none."""
    pairs = dict((packet.properties or {}).get(PropertyId.USER_PROPERTY, ()))
    return int(pairs.get("incarnation", 0)), int(pairs.get("seq", 0))


class Server:
    """An MQTT 5 server. taken: identities of accepted messages; a message appears twice only if the
    publisher sends it twice. refuse: returns the reason code of PUBREC. complete: returns the
    reason code of PUBCOMP; None: the server closes the connection instead.
    """

    def __init__(self) -> None:
        self.port = 0
        self.connack = Connack(False, properties=COUNTS)
        self.refuse: Callable[[Publish], ReasonCode] = lambda packet: ReasonCode.SUCCESS
        self.complete: Callable[[Pubrel], ReasonCode | None] = lambda packet: ReasonCode.SUCCESS
        self.farewell: Disconnect | None = None
        """A DISCONNECT that the server sends once, instead of the next PUBREC."""
        self.connects: list[Connect] = []
        self.publishes: list[Publish] = []
        self.releases: list[int] = []
        self.taken: list[Identity] = []
        self.present = False
        """Whether the server keeps sessions over connections."""
        self.most = 0
        """Largest number of messages that were in flight at the same time."""
        self.pings: list[float] = []
        """Monotonic time of each PINGREQ, in seconds."""
        self._held: set[int] = set()
        self._wires: set[Wire] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer, Version.V5, Side.CLIENT)
        self._wires.add(wire)
        with suppress(AssertionError, OSError):
            self.connects.append(await wire.take(Connect))
            if self.connects[-1].clean_start or not self.present:
                self._held.clear()
            self.connack.session_present = bool(self._held)
            wire.send(self.connack)
            while not self.connack.reason and await self._answer(wire):
                pass
        writer.close()
        self._wires.discard(wire)

    async def _answer(self, wire: Wire) -> bool:
        packet = await wire.take(Packet)  # type: ignore[arg-type]
        match packet:
            case Publish(qos=0):
                pass
            case Publish():
                self.publishes.append(packet)
                if self.farewell is not None:
                    wire.send(self.farewell)
                    self.farewell = None
                    return False
                reason = self.refuse(packet)
                if packet.qos == 1:
                    wire.send(Puback(packet.packet_id, reason))
                    return True
                if reason < 0x80:
                    if packet.packet_id not in self._held:
                        self.taken.append(identity(packet))
                    self._held.add(packet.packet_id)
                    self.most = max(self.most, len(self._held))
                wire.send(Pubrec(packet.packet_id, reason))
            case Pubrel():
                self.releases.append(packet.packet_id)
                answer = self.complete(packet)
                if answer is None:
                    return False
                self._held.discard(packet.packet_id)
                wire.send(Pubcomp(packet.packet_id, answer))
            case Pingreq():
                self.pings.append(time.monotonic())
                wire.send(Pingresp())
            case Subscribe():
                wire.send(
                    Suback(packet.packet_id, [ReasonCode(one.qos) for one in packet.subscriptions])
                )
            case Unsubscribe():
                wire.send(
                    Unsuback(packet.packet_id, [ReasonCode.SUCCESS] * len(packet.topic_filters))
                )
            case _:
                return False
        return True

    def cut(self) -> None:
        """Close all connections."""
        for wire in self._wires:
            wire.writer.transport.abort()


@asynccontextmanager
async def server() -> AsyncIterator[Server]:
    own = Server()
    listener = await asyncio.start_server(own.serve, "127.0.0.1", 0)
    own.port = listener.sockets[0].getsockname()[1]
    try:
        yield own
    finally:
        listener.close()
        own.cut()
