"""A client of the site, which uses TCP, follows the standard strictly, and can move.

In: its gateway, and time. Out: messages with their own identity, and the same events as those of
the rig's clients (`hil/clients/strict.py`). Unfinished exchanges are in the rig's own `Flows`. A
connection keeps the order of its bytes. When one end closes, the other end learns of it a moment
later.
"""

from collections import deque
from functools import partial
from random import Random

from gateway.access.peer import Peer
from hil.clients.flows import Fate, Flows
from hil.clients.payloads import text_of
from hil.clients.telling import INCARNATION, SESSION_EXPIRY, identity, topic_of
from hil.formats.connection import Due
from hil.formats.packets import (
    Answer,
    Connack,
    Connect,
    Cutter,
    Packet,
    Property,
    Publish,
    write,
)
from tests.sim.whole.clock import Time
from tests.sim.whole.gateway import Gateway
from tests.sim.whole.truth import Truth

_DELAYS = (0.0005, 0.002, 0.01)
_AGAIN_S = 0.15
"""Seconds before the client connects again, or publishes a refused message again."""
_EACH_S = 0.1
_BYTES = 24
_SESSION = ((Property.SESSION_EXPIRY_INTERVAL, SESSION_EXPIRY),)


class _Connection:
    """A connection between the client and one life of a gateway, and the `Transport` of the
    gateway's link.
    """

    high_water = 65_536
    unsent = undelivered = 0

    def __init__(self, client: "Client", gateway: Gateway) -> None:
        self.peer = Peer("tcp", "memory", None)
        self.loop = gateway.loop
        self.clear = dict.fromkeys(("up", "down"), 0.0)
        """Time at which the newest bytes arrive, by direction."""
        self._client = client
        self._link = gateway.accept(self)
        self._cutter = Cutter()
        self._paused = False
        self._waiting: deque[bytes] = deque()

    def send(self, *packets: Packet) -> None:
        self._client.after(self, "up", partial(self._bring, b"".join(map(write, packets))))

    def _bring(self, data: bytes) -> None:
        if self.loop.dead or self._link is None:
            return
        if self._paused:
            self._waiting.append(data)
        else:
            self._link.receive(data)

    def leave(self) -> None:
        """Disconnect. The gateway learns of it after all sent bytes."""
        self._client.after(self, "up", self._left)

    def _left(self) -> None:
        link, self._link = self._link, None
        if link is not None and not self.loop.dead:
            link.lost("the client has gone")

    # -- the gateway's `Transport`

    def write(self, data: bytes) -> None:
        self._client.after(self, "down", partial(self._arrive, data))

    def _arrive(self, data: bytes) -> None:
        for packet in self._cutter.feed(data):
            self._client.take(self, packet)

    def close(self) -> None:
        self._link = None
        self.broken()

    abort = close

    def broken(self) -> None:
        self._client.after(self, "down", partial(self._client.lost, self))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self.loop.call_soon(self._bring_on)

    def _bring_on(self) -> None:
        while self._waiting and not self._paused and self._link is not None:
            self._link.receive(self._waiting.popleft())


class Client:
    """A client that publishes. seed: decides its payloads, its QoS and the number of messages in
    flight.
    """

    def __init__(self, time: Time, truth: Truth, name: str, at: Gateway, seed: str) -> None:
        self._time = time
        self._truth = truth
        self.name = name
        self._at: Gateway | None = at
        self._random = random = Random(seed)
        self._qos = random.choice((1, 2, 2))
        self._window = random.choice((1, 1, 3))
        self._flows = Flows(count=random.choice((3, 65_535)))
        self._payloads: list[bytes] = []
        self._again: deque[int] = deque()
        self._connection: _Connection | None = None
        self._answers = Due()
        self._accepted = False
        self._clean = True
        self._retain = random.random() < 0.5
        self._silent = False
        """Whether the client publishes no further message. A client without any message still
        publishes its first one.
        """
        self._connect()
        self._publish_more()

    @property
    def at_rest(self) -> bool:
        return bool(self._payloads) and self._accepted and not self._flows and not self._again

    @property
    def sent(self) -> int:
        return len(self._payloads)

    def move(self, to: Gateway | None) -> None:
        """Disconnect, and connect to another gateway. None: stay disconnected."""
        self._at = to
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._accepted = False
            connection.leave()

    def leave(self, gone: Gateway, to: Gateway) -> None:
        """Connect to the gateway `to` if the client is at `gone`, a gateway that does not come
        back.
        """
        if self._at is gone:
            self.move(to)

    def mend(self, at: Gateway) -> None:
        """From now on, publish no new message, and only complete the open exchanges. at: the
        gateway to which the client connects if it has none, or if its own is lost.
        """
        self._silent = True
        if self._at is None or self._at.gone:
            self.move(at)

    def gateway_died(self, gateway: Gateway) -> None:
        if self._connection is not None and self._connection.loop is gateway.loop:
            self._connection.broken()

    # -- its connection

    def after(self, connection: _Connection, way: str, call: partial[None]) -> None:
        """Make the call when all earlier bytes of this connection and direction have arrived."""
        at = max(connection.clear[way], self._time.now + self._random.choice(_DELAYS))
        connection.clear[way] = at
        self._time.at(at, call)

    def lost(self, connection: _Connection) -> None:
        if connection is self._connection:
            self._connection, self._accepted = None, False

    def _connect(self) -> None:
        if self._connection is None and self._at is not None and self._at.alive:
            self._connection = _Connection(self, self._at)
            self._connection.send(Connect(self.name, self._clean, 0, _SESSION))
        self._time.after(_AGAIN_S, self._connect)

    def take(self, connection: _Connection, packet: Packet) -> None:
        if connection is not self._connection:
            return
        match packet:
            case Connack(present, reason):
                if not reason:
                    self._greeted(present)
            case Answer():
                self._answered(packet)

    def _greeted(self, present: bool) -> None:
        assert self._at is not None
        self._accepted, self._clean = True, False
        self._truth.add(
            "board", "connected", device=self.name, gateway=self._at.name, session_present=present
        )
        self._answers = Due()
        packets, lost = self._flows.connected(present)
        for packet in packets:
            if isinstance(packet, Publish):
                self._tell("resent", int(packet.user["seq"]))
        self._send(*packets)
        for sequence in reversed(lost):
            self._tell("forgotten", sequence)
            self._again.appendleft(sequence)

    def _answered(self, answer: Answer) -> None:
        if not self._answers.answer(answer):
            name = answer.kind.name.lower()
            self._truth.add("board", "unasked", device=self.name, packet=name, id=answer.id)
        packets, fates = self._flows.take(answer)
        if packets:
            self._send(*packets)
        for sequence, fate in fates:
            if fate is Fate.ACKNOWLEDGED:
                self._tell("acknowledged", sequence)
            else:
                if fate is Fate.FORGOTTEN:
                    self._tell("forgotten", sequence)
                self._again.append(sequence)

    # -- messages

    def _publish_more(self) -> None:
        if self._accepted and len(self._flows) < self._window and self._flows.free:
            if self._again:
                self._tell("again", self._again[0])
                self._publish(self._again.popleft())
            elif not (self._silent and self._payloads):
                sequence = len(self._payloads) + 1
                payload = text_of(self.name, sequence, _BYTES, self._random)
                self._payloads.append(payload)
                said = {"topic": topic_of(self.name), "payload": payload.hex()}
                self._tell("publication", sequence, kind="message", qos=self._qos, **said)
                self._publish(sequence)
        self._time.after(_EACH_S, self._publish_more)

    def _publish(self, sequence: int) -> None:
        payload = self._payloads[sequence - 1]
        message = Publish(
            topic_of(self.name),
            payload,
            self._qos,
            retain=self._retain,
            properties=identity(sequence),
        )
        self._send(self._flows.begin(sequence, message))

    def _send(self, *packets: Packet) -> None:
        for packet in packets:
            self._answers.ask(packet)
        if self._connection is not None and packets:
            self._connection.send(*packets)

    def _tell(self, event: str, sequence: int, **data: object) -> None:
        self._truth.add(
            "board", event, device=self.name, incarnation=INCARNATION, sequence=sequence, **data
        )
