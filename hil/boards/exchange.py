"""A board's real firmware and a gateway in this process, both in board time: as fast as the machine
allows, and repeatable. In: a board at speed `step`, and commands for it. Out: the publications that
reached the gateway, each with its identity, and the number of completed commands. The gateway's end
of the link is the product's. Its MQTT is limited to the packets of a sensor, with Delivery Method
B, and keeps all data in memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gateway.links.greeter import Greeter
from gateway.links.reliable import Received, Session, SessionStarted
from gateway.links.roles import GatewayLink
from gateway.mqtt.encode import encode
from gateway.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Version,
)
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.stream import PacketStream
from hil.boards.simulator import HZ, SimulatedBoard

INCARNATION = 0xC0FFEE
SHORTEST_STEP, LONGEST_STEP = 0.001, 1.0
"""Shortest and longest step of board time while the board is silent, in seconds."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A publication that a gateway would commit to its spool. sequence: the packet identifier, so
    below 65,536.
    """

    incarnation: int
    sequence: int
    payload: bytes


@dataclass
class Gateway:
    """One gateway with one serial port. deliveries: in order of arrival. After a PUBREL, the next
    PUBLISH with its identifier is a new delivery. commands: payloads of commands. Once the board
    has subscribed, it gets them at QoS 2, one after the other. obeyed: number of completed
    commands."""

    commands: Sequence[bytes] = ()
    obeyed: int = 0
    deliveries: list[Delivery] = field(default_factory=list)
    completed: int = 0
    known: bool = False  # whether the client has a session
    ids: set[int] = field(default_factory=set)

    topic: str = ""  # the board's subscription
    _sent: bool = False  # whether the present command's PUBLISH was sent
    _received: bool = False  # whether its PUBREC has arrived

    def __post_init__(self) -> None:
        self.link = GatewayLink(Greeter(1, incarnation=lambda: INCARNATION), 115_200)
        self._stream = PacketStream(1024)
        self._incarnation = 0

    def receive(self, data: bytes, now: float) -> bytes:
        """Handle the board's bytes until `now` (s of board time). Return the bytes to send."""
        for event in (*self.link.receive(data, now), *self.link.tick(now)):
            if isinstance(event, SessionStarted):
                self._stream = PacketStream(1024)
                self._incarnation = event.welcome.incarnation
            elif isinstance(event, Received):
                self._stream.feed(event.data)
                for packet in self._stream:
                    self._answer(event.session, packet, now)
        return self.link.take()

    def connected(self) -> None:
        self.known = True

    def deliver(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def _answer(self, session: Session, packet: Packet, now: float) -> None:
        for answer in self._answers(packet):
            self.link.write(session, encode(answer, Version.V5), now)

    def _command(self) -> Iterator[Packet]:
        """Yield the next command, or the next packet of its flow."""
        number = self.obeyed + 1
        if not self.topic or number > len(self.commands):
            return
        if self._received:
            yield Pubrel(number)
        else:
            yield Publish(
                self.topic, self.commands[number - 1], qos=2, packet_id=number, dup=self._sent
            )
            self._sent = True

    def _answers(self, packet: Packet) -> Iterator[Packet]:
        match packet:
            case Connect(version=Version.V5):
                present = self.known and not packet.clean_start
                yield Connack(session_present=present)
                if not present:
                    self.ids = set()
                    self.topic, self._sent, self._received = "", False, False
                yield from self._command()
                self.connected()
            case Publish(qos=2):
                if packet.packet_id not in self.ids:
                    self.ids.add(packet.packet_id)
                    self.deliver(Delivery(self._incarnation, packet.packet_id, packet.payload))
                yield Pubrec(packet.packet_id)
            case Pubrel():
                found = packet.packet_id in self.ids
                self.ids.discard(packet.packet_id)
                self.completed += found
                yield Pubcomp(
                    packet.packet_id,
                    ReasonCode.SUCCESS if found else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND,
                )
            case Subscribe():
                yield Suback(
                    packet.packet_id, [ReasonCode.GRANTED_QOS_2] * len(packet.subscriptions)
                )
                if not self.topic:
                    self.topic = packet.subscriptions[0].topic_filter
                    yield from self._command()
            case Pubrec():
                self._received = True
                yield from self._command()
            case Pubcomp():
                self.obeyed += 1
                self._sent, self._received = False, False
                yield from self._command()
            case Pingreq():
                yield Pingresp()
            case _:
                raise ValueError(f"this gateway has no answer to {packet}")


async def converse(
    board: SimulatedBoard, gateway: Gateway, *, completed: int, seconds: float = 30.0
) -> None:
    """Run board and gateway until the gateway has completed `completed` publications and all its
    commands, or the board is off; at most for `seconds` of board time.
    """
    await board.run(0)
    end = board.cycle + int(seconds * HZ)
    while (
        (gateway.completed < completed or gateway.obeyed < len(gateway.commands))
        and board.cycle < end
        and board.powered
    ):
        patience = (
            LONGEST_STEP
            if gateway.link.deadline is None
            else gateway.link.deadline - board.cycle / HZ
        )
        sent = await board.run(
            int(min(max(patience, SHORTEST_STEP), LONGEST_STEP) * HZ), burst=True
        )
        if answer := gateway.receive(sent, board.cycle / HZ):
            await board.send(answer)
