"""`python -m hil.clients.strict`: a program that publishes over MQTT 5 exactly by the standard, on
a plain socket, with given packet identifiers. SIGTERM ends it.

The program knows several brokers. It moves to the next broker after GIVES_UP failed tries to
connect; with `--hops`, as soon as a connection ends or fails. It also moves at SIGUSR1, and at
given messages between a PUBREC and its PUBREL.

In: brokers, number of messages, size, QoS, rate, number in flight (if the broker's Receive Maximum
permits), and identifiers. Out: JSON Lines on standard output, as `hil.clients.publisher` writes:

- `publication` before a message is sent for the first time;
- `resent` before it is sent once more in the same flow, after a reconnect;
- `again` before it is sent in another flow, because the gateway refused or lost it;
- `forgotten` when the gateway has lost the session that outlives the connection, or a message that
  it had answered by PUBREC;
- `acknowledged` when the gateway has it (not at QoS 0);
- `unasked` when the gateway answers a message not sent on this connection;
- with several brokers, `moving` before it leaves a broker after a PUBREC, and `connected`: the
  broker, and whether this broker had the session.
"""

import random
import signal
import time
from collections import deque
from collections.abc import Iterable
from typing import Annotated

import typer

from hil.clients import IDENTIFIERS
from hil.clients.connection import Connection
from hil.clients.flows import Fate, Flows
from hil.clients.options import (
    Messages,
    Name,
    PayloadBytes,
    PayloadForm,
    PerS,
    Seed,
)
from hil.clients.payloads import payload_of
from hil.clients.telling import READS_REASON_CODES, SESSION_EXPIRY, identity, tell, topic_of
from hil.formats.connection import Due
from hil.formats.packets import Answer, Connect, Packet, PacketError, Property, Publish, first

RECONNECT_WAIT = 0.5  # s
REFUSED_WAIT = 1.0  # s until a refused message is published again
GIVES_UP = 10
"""Failed attempts to connect before the client moves: more than a broker's restart causes."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    port: Annotated[
        list[int], typer.Option(help="Port of a broker on this machine; can be repeated.")
    ],
    name: Name,
    messages: Messages,
    payload: PayloadForm,
    payload_bytes: PayloadBytes,
    qos: Annotated[int, typer.Option(min=0, max=2)],
    per_s: PerS,
    seed: Seed,
    in_flight: Annotated[
        int, typer.Option(help="Largest number of messages in flight.", min=1)
    ] = 1,
    identifiers: Annotated[
        int, typer.Option(help="Number of packet identifiers to use.", min=1, max=IDENTIFIERS)
    ] = IDENTIFIERS,
    first_identifier: Annotated[
        int, typer.Option(help="First packet identifier.", min=1, max=IDENTIFIERS)
    ] = 1,
    move: Annotated[
        list[int] | None,
        typer.Option(help="Message after whose PUBREC the client goes to the next broker."),
    ] = None,
    hops: Annotated[
        bool, typer.Option("--hops", help="Go to the next broker when a connection ends.")
    ] = False,
    retain: Annotated[bool, typer.Option("--retain", help="Set RETAIN in each message.")] = False,
    named: Annotated[
        bool,
        typer.Option("--identity/--no-identity", help="Whether messages carry an incarnation."),
    ] = True,
) -> None:
    """Publish messages, and report each step on standard output."""
    rng = random.Random(seed)
    numbers = range(1, messages + 1)
    payloads = [payload_of(payload, name, number, payload_bytes, rng) for number in numbers]
    flows = Flows(first_identifier, identifiers)
    more = {"hops": hops, "named": named, "varied": payload == "senml", "retain": retain}
    publisher = Publisher(name, payloads, qos, per_s, in_flight, flows, move or (), **more)
    signal.signal(signal.SIGUSR1, publisher.call)
    publisher.run(*port)


class MovedError(Exception):
    """The client must leave this broker for the next broker. Ends the connection's loop."""


class Publisher:
    """A publisher of `payloads`, numbered from 1. moves: numbers of the messages after whose PUBREC
    the publisher moves to the next broker. hops: whether the publisher moves to the next broker at
    once when a connection ends. varied: whether its topics have many forms. named: whether its
    messages have an incarnation. retain: whether they are retained.
    """

    def __init__(
        self,
        name: str,
        payloads: list[bytes],
        qos: int,
        per_s: float,
        in_flight: int,
        flows: Flows,
        moves: Iterable[int] = (),
        *,
        hops: bool = False,
        named: bool = True,
        varied: bool = False,
        retain: bool = False,
    ) -> None:
        self._name = name
        self._varied = varied
        self._payloads = payloads
        self._qos = qos
        self._per_s = per_s
        self._in_flight = in_flight
        self._flows = flows
        self._announced = 0
        self._again: deque[tuple[float, int]] = deque()  # time of the next try, refused message
        self._answers = Due()  # answers on this connection
        self._start = time.monotonic()
        self._clean = True
        self._moves = set(moves)
        self._hops = hops
        self._nameless = not named
        self._retain = retain
        self._called = False

    def call(self, *_: object) -> None:
        """Order the move to the next broker. This is a signal handler."""
        self._called = True

    @property
    def _done(self) -> bool:
        return self._announced == len(self._payloads) and not self._flows and not self._again

    def run(self, *ports: int) -> None:
        session = (
            (Property.SESSION_EXPIRY_INTERVAL, SESSION_EXPIRY),
            (Property.USER_PROPERTY, READS_REASON_CODES),
        )
        at, tries = 0, 0
        while not self._done:
            port = ports[at % len(ports)]
            tries += 1
            try:
                with Connection(port, Connect(self._name, self._clean, 0, session)) as connection:
                    self._clean, tries = False, 0
                    if ports[1:]:
                        present = connection.connack.session_present
                        tell("connected", port=port, session_present=present)
                    self._talk(connection)
                    connection.disconnect()
            except MovedError:
                at, self._called = at + 1, False
            except (OSError, PacketError):
                at += self._hops or tries >= GIVES_UP
                tries %= GIVES_UP
                if tries or not self._hops:
                    time.sleep(RECONNECT_WAIT)

    def _talk(self, connection: Connection) -> None:
        self._answers = Due()
        connack = connection.connack
        most = first(connack.properties, Property.RECEIVE_MAXIMUM, 65_535)
        window = min(self._in_flight, most)
        packets, lost = self._flows.connected(connack.session_present)
        for packet in packets:
            if isinstance(packet, Publish):
                tell("resent", sequence=int(packet.user["seq"]))
        self._send(connection, *packets)
        for sequence in reversed(lost):
            tell("forgotten", sequence=sequence)
            self._again.appendleft((0.0, sequence))
        while not self._done:
            if self._called:
                raise MovedError
            now = time.monotonic()
            while len(self._flows) < window and self._flows.free:
                if (due := self._due(now)) is None:
                    break
                self._publish(connection, due)
            for answer in connection.receive(self._wait(window)):
                if isinstance(answer, Answer):
                    self._take(connection, answer)

    def _due(self, now: float) -> int | None:
        """Return the number of the message to send now; None if none is due. If a message was
        refused, it is sent again before all later ones, so that the order stays.
        """
        if self._again:
            at, sequence = self._again[0]
            if at > now:
                return None
            self._again.popleft()
            tell("again", sequence=sequence)
            return sequence
        if self._announced == len(self._payloads) or now < self._next_at:
            return None
        self._announced += 1
        payload = self._payloads[self._announced - 1]
        topic = topic_of(self._name, self._announced * self._varied)
        tell("publication", sequence=self._announced, topic=topic, payload=payload.hex())
        return self._announced

    @property
    def _next_at(self) -> float:
        return self._start + (self._announced + 1) / self._per_s

    def _wait(self, window: int) -> float:
        """Return the seconds until a message may be due. window: largest number in flight."""
        if self._done:
            return 0.0
        if len(self._flows) >= window or not self._flows.free:
            return RECONNECT_WAIT
        if self._again:
            return self._again[0][0] - time.monotonic()
        if self._announced < len(self._payloads):
            return self._next_at - time.monotonic()
        return RECONNECT_WAIT

    def _publish(self, connection: Connection, sequence: int) -> None:
        payload = self._payloads[sequence - 1]
        properties = identity(sequence)[self._nameless :]
        topic = topic_of(self._name, sequence * self._varied)
        message = Publish(topic, payload, self._qos, retain=self._retain, properties=properties)
        if self._qos:
            message = self._flows.begin(sequence, message)
        self._send(connection, message)

    def _send(self, connection: Connection, *packets: Packet) -> None:
        for packet in packets:
            self._answers.ask(packet)
        connection.send(*packets)

    def _take(self, connection: Connection, answer: Answer) -> None:
        if not self._answers.answer(answer):
            tell("unasked", packet=answer.kind.name.lower(), id=answer.id)
        packets, fates = self._flows.take(answer)
        message = self._flows.released(answer.id)
        if message in self._moves:
            self._moves.discard(message)
            self._flows.postpone(answer.id)
            tell("moving", sequence=message)
            raise MovedError
        if packets:
            self._send(connection, *packets)
        for sequence, fate in fates:
            if fate is Fate.ACKNOWLEDGED:
                tell("acknowledged", sequence=sequence)
            else:
                if fate is Fate.FORGOTTEN:
                    tell("forgotten", sequence=sequence)
                self._again.append((time.monotonic() + REFUSED_WAIT, sequence))


if __name__ == "__main__":
    app()
