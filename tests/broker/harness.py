"""A broker without sockets, clock or disk, and clients that speak to it in packets.

`World` stands for the event loop, the store (SQLite in memory, with the real schema) and the power
supply. Bytes go to the broker at once; commits happen at once too, unless `world.slow_disk` is set:
then `world.commit()` is the disk.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar, cast

from gateway.broker import handshake
from gateway.broker.access import ByAcl, Question, Refusal
from gateway.broker.broker import Broker, Policy
from gateway.broker.connection import Connection
from gateway.broker.delivery import Load
from gateway.broker.handshake import Ask
from gateway.broker.paging import answer
from gateway.broker.peer import DeviceIdentity, Peer
from gateway.config import AclSection, Config, LimitsSection, QueueSection, SpoolSection
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
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
from gateway.mqtt.properties import Properties, PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.stream import PacketStream
from gateway.store.apply import apply
from gateway.store.paging import collect, load
from gateway.store.recovery import recover
from gateway.store.schema import prepare
from gateway.store.uptime import save_axis

P = TypeVar("P", bound=Packet)
FOREVER: Properties = {PropertyId.SESSION_EXPIRY_INTERVAL: 0xFFFF_FFFF}


class Anonymous(ByAcl):
    """Takes clients without asking who they are, or takes nobody."""

    def __init__(self, allowed: bool = True) -> None:
        self._allowed = allowed

    def refuses_connect(self, connection: Connection, packet: Connect) -> Refusal | Question | None:
        return None if self._allowed else (ReasonCode.NOT_AUTHORIZED, "takes no anonymous clients")

    def holds(self, connection: Connection) -> bool:
        return True


class Client:
    """The far end of one connection. received: packets, in order. closed: the broker ended the
    connection. deaf: what comes is not read.
    """

    def __init__(
        self, world: "World", connection: Connection, version: Version, answers: bool
    ) -> None:
        self.world = world
        self.connection = connection
        self.version = version
        self.answers = answers
        self.received: list[Packet] = []
        self.raw = b""
        self.closed = False
        self.deaf = False
        self._stream = PacketStream(1 << 28, version, Side.SERVER)
        self._next_id = 0

    # -- towards the broker

    def send_bytes(self, data: bytes) -> None:
        self.connection.receive(data)
        self.world.turn()

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def publish(
        self, topic: str, payload: bytes | str = b"", qos: int = 0, packet_id: int = 0, **more: Any
    ) -> int:
        """Returns the packet identifier."""
        if qos and not packet_id:
            packet_id = self._next_id = self._next_id + 1
        self.send(
            Publish(
                topic,
                payload.encode() if isinstance(payload, str) else payload,
                qos,
                packet_id,
                **more,
            )
        )
        return packet_id

    def subscribe(self, *filters: str | Subscription, qos: int = 2, **properties: Any) -> Suback:
        wanted = [
            item if isinstance(item, Subscription) else Subscription(item, qos) for item in filters
        ]
        self.send(
            Subscribe(
                1,
                wanted,
                {PropertyId[name.upper()]: value for name, value in properties.items()} or None,
            )
        )
        (answer,) = self.take_all(Suback)
        return cast(Suback, answer)

    def disconnect(self, *args: Any) -> None:
        self.send(Disconnect(*args))

    def drop(self) -> None:
        """The network goes away."""
        self.connection.lost("the test cut the line")
        self.world.turn()
        self.closed = True

    # -- from the broker

    def arrive(self, data: bytes) -> None:
        self.raw += data
        if self.deaf:
            return
        self._stream.feed(data)
        packets = list(self._stream)
        self.received += packets
        for packet in packets if self.answers else ():
            self._answer(packet)

    def _answer(self, packet: Packet) -> None:
        match packet:
            case Publish(qos=1, packet_id=number):
                self.send(Puback(number))
            case Publish(qos=2, packet_id=number):
                self.send(Pubrec(number))
            case Pubrec(packet_id=number, reason=reason) if reason < 0x80:
                self.send(Pubrel(number))
            case Pubrel(packet_id=number):
                self.send(Pubcomp(number))

    def take(self, kind: type[P]) -> P:
        """The first packet received, which must be of this kind."""
        assert self.received, f"no {kind.__name__} came"
        packet = self.received.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    def take_all(self, kind: type[P] | None = None) -> list[Any]:
        """Everything received, or everything of one kind."""
        taken = [packet for packet in self.received if kind is None or isinstance(packet, kind)]
        self.received = [packet for packet in self.received if packet not in taken]
        return taken

    @property
    def payloads(self) -> list[bytes]:
        """Payloads of the PUBLISH packets received so far."""
        return [packet.payload for packet in self.received if isinstance(packet, Publish)]


class World:
    """clients: those that are connected. commits: numbers of the commits that are on disk."""

    def __init__(
        self,
        *,
        receive_maximum: int = 1024,
        spool_bytes: int = 1 << 30,
        queue: list[QueueSection] | None = None,
        acl: list[AclSection] | None = None,
        **limits: int,
    ) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        prepare(self.database, "test")
        self.config = Config(
            limits=LimitsSection(**limits),
            spool=SpoolSection(topics=["spool/#"], max_bytes=spool_bytes),
            queue=queue or [],
            acl=acl or [],
        )
        self.policy = Policy(Anonymous(), receive_maximum)
        self.slow_disk = False
        self._turning = False
        self.commits: list[int] = []
        self.on_commit: Callable[[], None] = lambda: None
        self.clients: dict[Connection, Client] = {}
        self._start()

    def _start(self) -> None:
        self.broker = Broker(self.config, recover(self.database, None, self.config.limits.inflight))

    def connect(
        self,
        client_id: str = "",
        *,
        version: Version = Version.V5,
        clean: bool = True,
        answers: bool = False,
        device: DeviceIdentity | None = None,
        properties: Properties | None = None,
        policy: Policy | None = None,
        **more: Any,
    ) -> Client:
        """A client whose CONNECT was sent. Its CONNACK is the first packet to take."""
        client = self.open(version, answers=answers, device=device, policy=policy)
        client.send(Connect(client_id, version, clean, properties=properties, **more))
        return client

    def accepted(self, client_id: str = "", **more: Any) -> Client:
        """A client that was accepted; its CONNACK is taken."""
        client = self.connect(client_id, **more)
        connack = client.take(Connack)
        assert connack.reason == 0, connack
        return client

    def durable(
        self,
        client_id: str,
        *,
        clean: bool = False,
        properties: Properties | None = None,
        **more: Any,
    ) -> Client:
        """An accepted client whose session outlives its connections."""
        return self.accepted(
            client_id, clean=clean, properties=FOREVER | (properties or {}), **more
        )

    def absent(self, *client_ids: str, topic: str = "t") -> None:
        """Sessions that are subscribed to a topic and whose clients are away."""
        for client_id in client_ids:
            client = self.durable(client_id)
            client.subscribe(topic)
            client.drop()

    def open(
        self,
        version: Version = Version.V5,
        *,
        answers: bool = False,
        device: DeviceIdentity | None = None,
        policy: Policy | None = None,
    ) -> Client:
        """A connection without a CONNECT."""
        connection = self.broker.open(Peer("test", "memory", device), policy or self.policy)
        client = self.clients[connection] = Client(self, connection, version, answers)
        return client

    def turn(self) -> None:
        """The end of an event-loop turn: write, and commit when somebody waits; then the same for
        what the clients answered.
        """
        if self._turning:
            return
        self._turning = True
        while (
            self.broker.dirty
            or self.broker.orders
            or (self.broker.changes.urgent and not self.slow_disk)
        ):
            self._write()
            self._order()
            if self.broker.changes.urgent and not self.slow_disk:
                self._commit()
        self._turning = False

    def _order(self) -> None:
        orders, self.broker.orders = self.broker.orders, []
        for order in orders:
            if isinstance(order, Ask):
                handshake.answer(self.broker, order, order.question.answer())
            else:
                answer(
                    self.broker,
                    order,
                    load(self.database, order)
                    if isinstance(order, Load)
                    else collect(self.database, order),
                )

    def _write(self) -> None:
        dirty, self.broker.dirty = self.broker.dirty, []
        for connection in dirty:
            data = connection.take()
            client = self.clients.get(connection)
            if client is None:
                continue
            client.closed = connection.closing is not None
            if client.closed:
                del self.clients[connection]
            client.arrive(data)

    def commit(self) -> None:
        """Bring what is open to disk, and let go what waited for it."""
        self._commit(sweep=True)
        self.turn()

    def _commit(self, sweep: bool = False) -> None:
        commit = self.broker.seal(sweep)
        apply(self.database, commit)
        self.commits.append(commit.number)
        self.on_commit()
        self.broker.on_disk(commit.number)

    def sleep(self, seconds: float) -> None:
        """Time passes, enough for what has no hurry to come to disk, too."""
        self.broker.now += seconds
        self.broker.advance()
        self.turn()
        if self.broker.idle_work and not self.slow_disk:
            self.commit()

    def power_cut(self) -> None:
        """What is not committed is gone, and all connections. The gateway starts again."""
        for client in self.clients.values():
            client.closed = True
        self.clients.clear()
        save_axis(self.database, int(self.broker.now * 1000), None)
        self._start()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.database.execute(query).fetchall()
