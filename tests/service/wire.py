"""A client that sends and receives MQTT packets over TCP. A test sees each packet unchanged."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from gateway.config import READS_REASON_CODES
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import Connack, Connect, Packet, Side, Version
from gateway.mqtt.properties import Properties, PropertyId
from gateway.mqtt.stream import PacketStream

P = TypeVar("P", bound=Packet)
READS: Properties = {PropertyId.USER_PROPERTY: [READS_REASON_CODES]}
"""Properties of CONNECT with which a client says that it reads reason codes."""


class Wire:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        version: Version,
        peer: Side = Side.SERVER,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.version = version
        self._stream = PacketStream(1 << 28, version if peer is Side.SERVER else None, peer)
        self._packets: list[Packet] = []

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(packet, self.version) for packet in packets))

    async def take(self, kind: type[P], within: float = 30) -> P:
        """Return the next packet, which must be of this type. within: time limit in seconds."""
        async with asyncio.timeout(within):
            while not self._packets:
                await self._read()
        packet = self._packets.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    async def pick(self, kind: type[P], within: float = 30) -> P:
        """Return the next packet of this type. Keep packets of other types that come before it.
        within: time limit in seconds.
        """
        async with asyncio.timeout(within):
            while True:
                for packet in self._packets:
                    if isinstance(packet, kind):
                        self._packets.remove(packet)
                        return packet
                await self._read()

    async def _read(self) -> None:
        data = await self.reader.read(65536)
        assert data, "the gateway closed the connection"
        self._stream.feed(data)
        self._packets += self._stream


@asynccontextmanager
async def wire(port: int, connect: Connect) -> AsyncIterator[Wire]:
    """Connect a client, which must be accepted, and yield its connection."""
    client = Wire(*await asyncio.open_connection("127.0.0.1", port), connect.version)
    client.send(connect)
    assert (await client.take(Connack)).reason == 0
    yield client
    client.writer.close()
