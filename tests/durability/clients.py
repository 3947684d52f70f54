"""Publishers and subscribers that keep their session state through outages of the gateway, as the
standard requires.

In: a port. Out: for each publisher, how many messages were published, acknowledged (by PUBACK or
PUBREC) and delivered. A payload is `NAME:NUMBER` with numbers from 0 on, so a missing, doubled or
misplaced message is noticed.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from gateway.config import READS_REASON_CODES
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Side,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from gateway.mqtt.properties import PropertyId
from gateway.mqtt.stream import PacketStream
from tests.durability.ledger import Faults, Ledger

FOREVER = {
    PropertyId.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF,
    PropertyId.USER_PROPERTY: [READS_REASON_CODES],
}
WINDOW = 100


class Line(asyncio.Protocol):
    """The client's end of a Network Connection. taken: called after each read, with all packets
    that are then complete.
    """

    def __init__(self, version: Version, taken: Callable[[list[Packet]], None]) -> None:
        self._stream = PacketStream(1 << 20, version, Side.SERVER)
        self._version = version
        self._taken = taken
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._stream.feed(data)
        self._taken(list(self._stream))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None

    def send(self, packets: list[Packet]) -> None:
        if packets and self._transport is not None:
            self._transport.write(b"".join(encode(packet, self._version) for packet in packets))

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Client(ABC):
    """A client whose session never expires. known: whether the gateway has confirmed that it keeps
    the session. changed: set whenever packets have arrived.
    """

    def __init__(self, name: str, version: Version, faults: Faults) -> None:
        self.name = name
        self.version = version
        self.faults = faults
        self.known = False
        self.changed = asyncio.Event()
        self.line: Line | None = None
        self._connected: asyncio.Future[None] | None = None

    async def connect(self, port: int) -> None:
        """Connect and wait for CONNACK."""
        loop = asyncio.get_running_loop()
        self._connected = loop.create_future()
        _, self.line = await loop.create_connection(
            lambda: Line(self.version, self._taken), "127.0.0.1", port
        )
        self.line.send(
            [
                Connect(
                    self.name,
                    self.version,
                    False,
                    properties=FOREVER if self.version == Version.V5 else None,
                )
            ]
        )
        await asyncio.wait_for(self._connected, 20)

    def drop(self) -> None:
        """Drop the connection, and ignore input that still arrives on it."""
        if self.line is not None:
            self.line.drop()
            self.line = None

    def _taken(self, packets: list[Packet]) -> None:
        if self.line is None:
            return
        answers: list[Packet] = []
        for packet in packets:
            if isinstance(packet, Connack):
                answers += self._accepted(packet)
            else:
                answers += self.take(packet)
        self.line.send(answers + self.more())
        self.changed.set()

    def _accepted(self, packet: Connack) -> list[Packet]:
        assert self._connected is not None
        if packet.reason:
            self.faults.append(f"{self.name}: CONNACK {packet.reason}")
        if self.known and not packet.session_present:
            self.faults.append(f"{self.name}: the session is gone")
        self.known = True
        if not self._connected.done():
            self._connected.set_result(None)
        return self.resume()

    def resume(self) -> list[Packet]:
        """Return the packets to send first after a reconnect."""
        return []

    @abstractmethod
    def take(self, packet: Packet) -> list[Packet]:
        """Return the answers to a packet."""

    def more(self) -> list[Packet]:
        """Return further packets to send after all packets of one read were handled."""
        return []


class Publisher(Client):
    """A client that publishes, and that records acknowledgements. published: number of messages
    sent at least once. promised: number of acknowledged messages. going: whether the client sends
    new messages.
    """

    def __init__(
        self, name: str, version: Version, faults: Faults, qos: int, size: int = 32
    ) -> None:
        super().__init__(name, version, faults)
        self.qos = qos
        self.size = size
        self.published = 0
        self.promised = 0
        self.refused = 0
        self.going = False
        self._flights: dict[int, Publish | None] = {}
        self._next_id = 0

    @property
    def flying(self) -> int:
        return len(self._flights)

    def start(self) -> None:
        assert self.line is not None
        self.going = True
        self.line.send(self.more())

    def resume(self) -> list[Packet]:
        return [
            Pubrel(identifier)
            if sent is None
            else Publish(sent.topic, sent.payload, self.qos, identifier, dup=True)
            for identifier, sent in self._flights.items()
        ]

    def take(self, packet: Packet) -> list[Packet]:
        identifier = getattr(packet, "packet_id", 0)
        if identifier not in self._flights:
            return []
        if isinstance(packet, Puback | Pubrec) and packet.reason >= 0x80:
            self.refused += 1
            self._again(identifier)
        elif isinstance(packet, Pubrec):
            self.promised += self._flights[identifier] is not None
            self._flights[identifier] = None
            return [Pubrel(identifier)]
        elif isinstance(packet, Puback):
            self.promised += 1
            del self._flights[identifier]
        elif isinstance(packet, Pubcomp) and self._flights.pop(identifier) is not None:
            self.faults.append(f"{self.name}: PUBCOMP for {identifier}, which has had no PUBREC")
        return []

    def _again(self, identifier: int) -> None:
        """Send a refused message again after 50 ms."""
        line, sent = self.line, self._flights[identifier]
        assert sent is not None
        asyncio.get_running_loop().call_later(
            0.05, lambda: line.send([sent]) if line is self.line and line is not None else None
        )

    def more(self) -> list[Packet]:
        fresh: list[Packet] = []
        while self.going and len(self._flights) < WINDOW:
            self._next_id = self._next_id % 65535 + 1
            if self._next_id in self._flights:
                continue
            payload = f"{self.name}:{self.published}".encode().ljust(self.size)
            packet = self._flights[self._next_id] = Publish(
                f"load/{self.name}", payload, self.qos, self._next_id
            )
            self.published += 1
            fresh.append(packet)
        return fresh


class Subscriber(Client):
    """A subscriber at QoS 2 that keeps packet identifiers between PUBLISH and PUBREL. ledger:
    delivered messages. held_back: number of repeated QoS 2 messages that were not delivered again.
    """

    def __init__(self, name: str, version: Version, faults: Faults) -> None:
        super().__init__(name, version, faults)
        self.ledger = Ledger(name, faults)
        self.held_back = 0
        self._held: set[int] = set()
        self._subscribed: asyncio.Future[None] | None = None

    async def subscribe(self) -> None:
        assert self.line is not None
        self._subscribed = asyncio.get_running_loop().create_future()
        self.line.send([Subscribe(1, [Subscription("load/#", 2)])])
        await asyncio.wait_for(self._subscribed, 20)

    def take(self, packet: Packet) -> list[Packet]:
        match packet:
            case Suback():
                assert self._subscribed is not None
                self._subscribed.set_result(None)
            case Publish(qos=0):  # the gateway sends QoS 0 before the publication is committed
                self.ledger.arrived(*label(packet.payload), once=False)
            case Publish(qos=1, packet_id=identifier):
                self.ledger.arrived(*label(packet.payload), once=False)
                return [Puback(identifier)]
            case Publish(qos=2, packet_id=identifier):
                if identifier in self._held:
                    self.held_back += 1
                else:
                    self._held.add(identifier)
                    self.ledger.arrived(*label(packet.payload), once=True)
                return [Pubrec(identifier)]
            case Pubrel(packet_id=identifier):
                self._held.discard(identifier)
                return [Pubcomp(identifier)]
        return []


def label(payload: bytes) -> tuple[str, int]:
    """Split a payload into the publisher's name and the number."""
    name, _, number = payload.decode().rstrip().partition(":")
    return name, int(number)
