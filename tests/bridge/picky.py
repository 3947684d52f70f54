"""A broker for tests of bridges that accepts or refuses each PUBLISH as the test wants. A refusal
is a reason code or the end of the connection. The broker's session never expires, and the broker
accepts each QoS 2 message once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
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
from gateway.mqtt.stream import PacketStream
from gateway.mqtt.wire import pack_u16

Verdict = int | Literal["close"] | Disconnect | None
"""The answer to a packet: a reason code, the end of the connection ("close" or a DISCONNECT), or
None for no answer.
"""


class Picky:
    """A broker whose refusals the test sets. verdict: returns the answer to a PUBLISH. filters:
    returns the answer to one filter of a SUBSCRIBE or UNSUBSCRIBE. release: returns the answer to
    the PUBREL of a message. All three accept by default. acts_late: the broker takes a QoS 2
    message at its PUBREL and not at its PUBLISH. greet: called with the number of a connection
    before CONNACK; "close" ends that connection.
    """

    def __init__(self, **properties: int) -> None:
        self.port = 0
        self.properties: Properties = {
            PropertyId[name.upper()]: value for name, value in properties.items()
        }
        self.verdict: Callable[[Publish], Verdict] = lambda packet: 0
        self.filters: Callable[[str], Verdict] = lambda item: 0
        self.release: Callable[[Publish | None], Verdict] = lambda packet: 0
        self.acts_late = False
        self.greet: Callable[[int], Literal["close"] | None] = lambda number: None
        self.came: list[Packet] = []
        """Every packet received, in order."""
        self.largest = 0
        """Size in bytes of the largest packet received, CONNECT excluded."""
        self.answers: list[Puback | Pubrec] = []
        """PUBACK and PUBREC packets received for messages of `send`. The broker then sends
        PUBREL.
        """
        self.taken: list[Publish] = []
        """Messages that the broker has accepted. A QoS 2 message that was received again is listed
        once.
        """
        self.connections = 0
        self.silent: set[int] = set()
        """Packet identifiers whose PUBREL gets no answer."""
        self.received: dict[int, Publish] = {}
        """QoS 2 messages whose PUBREL has not come, by packet identifier."""
        self.clients: list[str] = []
        """Client identifier of each connection, in order."""
        self._known: str | None = None
        """Client identifier of the session, or None without a session."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._news = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        stream = PacketStream(1 << 28, None, Side.CLIENT)
        while data := await reader.read(65536):
            stream.feed(data)
            for packet in stream:
                self.came.append(packet)
                if not isinstance(packet, Connect):
                    self.largest = max(self.largest, len(encode(packet, Version.V5)))
                answer = self._answer(packet)
                async with self._news:
                    self._news.notify_all()
                if isinstance(answer, bytes):
                    writer.write(answer)
                    continue
                if isinstance(answer, Disconnect):
                    writer.write(encode(answer, Version.V5))
                writer.close()
                return
        writer.close()

    def _answer(self, packet: Packet) -> bytes | Literal["close"] | Disconnect:
        match packet:
            case Connect():
                # the bridge reads retained messages on a connection without a session
                if packet.clean_start:
                    return encode(Connack(False, properties=dict(self.properties)), Version.V5)
                self.connections += 1
                if (wanted := self.greet(self.connections)) is not None:
                    return wanted
                self.clients.append(packet.client_id)
                known = self._known == packet.client_id
                if not known:
                    self.received.clear()
                self._known = packet.client_id
                return encode(Connack(known, properties=dict(self.properties)), Version.V5)
            case Publish():
                return self._published(packet)
            case Pubrel():
                if packet.packet_id in self.silent:
                    return b""
                message = self.received.get(packet.packet_id)
                verdict = self.release(message)
                if not isinstance(verdict, int):
                    return b"" if verdict is None else verdict
                self.received.pop(packet.packet_id, None)
                if self.acts_late and message is not None:
                    self.taken.append(message)
                return b"\x70\x02" + pack_u16(packet.packet_id)
            case Subscribe() | Unsubscribe():
                return self._asked(packet)
            case Pingreq():
                return encode(Pingresp(), Version.V5)
            case Puback() | Pubrec():
                self.answers.append(packet)
                if isinstance(packet, Pubrec) and packet.reason < 0x80:
                    return encode(Pubrel(packet.packet_id), Version.V5)
        return b""

    def _published(self, packet: Publish) -> bytes | Literal["close"] | Disconnect:
        known = packet.qos == 2 and packet.packet_id in self.received
        verdict = 0 if known else self.verdict(packet)
        if not isinstance(verdict, int):
            return b"" if verdict is None else verdict
        if verdict < 0x80 and not known and not (self.acts_late and packet.qos == 2):
            self.taken.append(packet)
        if not packet.qos:
            return b""
        if packet.qos == 2 and verdict < 0x80:
            self.received[packet.packet_id] = packet
        kind = b"\x40" if packet.qos == 1 else b"\x50"
        return kind + b"\x03" + pack_u16(packet.packet_id) + bytes((verdict,))

    def _asked(self, packet: Subscribe | Unsubscribe) -> bytes | Literal["close"] | Disconnect:
        if isinstance(packet, Subscribe):
            items = [item.topic_filter for item in packet.subscriptions]
        else:
            items = packet.topic_filters
        reasons = []
        for item in items:
            verdict = self.filters(item)
            if not isinstance(verdict, int):
                return b"" if verdict is None else verdict
            reasons.append(ReasonCode(verdict))
        answer = Suback if isinstance(packet, Subscribe) else Unsuback
        return encode(answer(packet.packet_id, reasons), Version.V5)

    def send(self, packet: Packet) -> None:
        self.send_bytes(encode(packet, Version.V5))

    def send_bytes(self, data: bytes) -> None:
        for writer in self._writers:
            if not writer.is_closing():
                writer.write(data)

    @property
    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.taken]

    @property
    def sent(self) -> list[Publish]:
        """Return every PUBLISH received, repetitions included."""
        return [packet for packet in self.came if isinstance(packet, Publish)]

    async def until(self, count: int, within: float = 60) -> None:
        """Wait until the broker has accepted `count` messages. within: time limit in seconds."""
        async with asyncio.timeout(within), self._news:
            await self._news.wait_for(lambda: len(self.taken) >= count)

    def forget(self) -> None:
        """Close every connection and lose the session, like a broker that restarts without its
        store.
        """
        self._known = None
        self.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()


@asynccontextmanager
async def picky(port: int = 0, **properties: int) -> AsyncIterator[Picky]:
    """Run a broker whose refusals the test sets, and yield it. properties: properties of its
    CONNACK.
    """
    broker = Picky(**properties)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port)
    broker.port = int(server.sockets[0].getsockname()[1])
    try:
        yield broker
    finally:
        broker.close()
        server.close()
