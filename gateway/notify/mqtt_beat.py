"""The heartbeat at another MQTT broker: a retained message, with a will that replaces it.

In: a URL such as `mqtts://broker.example/onceway/site-1`, whose path is the topic. Out: the
retained message `online` for as long as the gateway runs. A gateway that ends publishes `offline`.
If the gateway is killed or the connection breaks, the broker publishes `offline`: at the latest one
and a half times heartbeat_s after the last packet.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from gateway.config import NotifySection
from gateway.config.values import split_beat
from gateway.errors import OncewayError
from gateway.links.tls import client_context
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Publish,
    Side,
    Version,
    Will,
)
from gateway.mqtt.stream import PacketStream
from gateway.notify.channels import PATIENCE_S

_ALIVE, _DEAD = b"online", b"offline"
_LONGEST_PACKET = 65_536


async def keep(section: NotifySection, alive: Callable[[], None]) -> None:
    """Connect, and send heartbeats until the connection ends. Then raise OncewayError, OSError or
    TimeoutError with the reason. alive: called whenever the broker has answered.
    """
    async with _connected(section) as line:
        topic = split_beat(section.heartbeat or "")[3]
        try:
            while True:  # repeated: an older connection's will may come late
                await line.ask(Publish(topic, _ALIVE, 1, 1, retain=True), Puback)
                alive()
                await asyncio.sleep(section.heartbeat_s / 2)
        except asyncio.CancelledError:
            with suppress(OSError):
                line.send(Publish(topic, _DEAD, retain=True))
                line.send(Disconnect())
                await asyncio.wait_for(line.writer.drain(), 1.0)
            raise


class _Line:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._stream = PacketStream(_LONGEST_PACKET, Version.V3_1_1, Side.SERVER)

    def send(self, packet: Packet) -> None:
        self.writer.write(encode(packet, Version.V3_1_1))

    async def ask(self, packet: Packet, answer: type[Packet]) -> Packet:
        """Send a packet, and return the next packet of type `answer`; other packets are ignored.
        Raises OSError or TimeoutError.
        """
        self.send(packet)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for found in self._stream:
                    if isinstance(found, answer):
                        return found
                data = await self._reader.read(_LONGEST_PACKET)
                if not data:
                    raise ConnectionResetError("the broker has ended the connection")
                self._stream.feed(data)


@asynccontextmanager
async def _connected(section: NotifySection) -> AsyncIterator[_Line]:
    host, port, encrypted, topic = split_beat(section.heartbeat or "")
    context = client_context(section.heartbeat_ca, None, None) if encrypted else None
    password = section.heartbeat_password_file
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        line = _Line(reader, writer)
        hello = Connect(
            f"onceway-{hashlib.sha256(topic.encode()).hexdigest()[:12]}",  # ends an older session
            Version.V3_1_1,
            keep_alive=min(section.heartbeat_s, 65_535),
            will=Will(topic, _DEAD, 1, retain=True),
            username=section.heartbeat_user,
            password=None if password is None else password.read_bytes().rstrip(b"\r\n"),
        )
        answer = await line.ask(hello, Connack)
        if isinstance(answer, Connack) and answer.reason:
            words = answer.reason.name.lower().replace("_", " ")
            raise OncewayError(f"the broker refuses the heartbeat: {words}")
        yield line
    finally:
        writer.close()
