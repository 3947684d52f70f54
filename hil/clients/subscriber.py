"""`python -m hil.clients.subscriber`: a program that subscribes over MQTT 5, on a plain socket,
exactly by the standard. SIGTERM ends it.

In: broker, topic filter, QoS; whether its session outlives a connection, and how often it
disconnects. Out: JSON Lines on standard output:

- `connected` (with session_present), `subscribing`, and `subscribed` (with the QoS granted);
- `received` for each PUBLISH and `released` for each PUBREL, before it is answered;
- `left` when it disconnects by itself, `broken` when the connection is lost.

Keys of `received`. again: whether a QoS 2 message has an identifier that has not been released; a
receiver treats it as the message that it already has (4.3.3). under_way: number of QoS 1 and 2
messages that arrived on this connection and have not got their last answer, including those that
arrived together with this message. The broker has at least as many in flight (4.9).
"""

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from hil.clients.connection import Connection
from hil.clients.telling import SESSION_EXPIRY, tell
from hil.formats.packets import (
    Answer,
    Connect,
    Kind,
    Packet,
    PacketError,
    Property,
    Publish,
    Suback,
    Subscribe,
)

RECONNECT_WAIT = 0.5  # s
LOOK_EVERY = 0.5  # s
SUBSCRIBE_ID = 1

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    port: Annotated[int, typer.Option(help="Port of the broker, on this machine.")],
    name: Annotated[str, typer.Option(help="Client identifier.")],
    topic_filter: Annotated[str, typer.Option(help="Topic filter of the subscription.")],
    qos: Annotated[int, typer.Option(min=0, max=2)],
    clean: Annotated[
        bool, typer.Option("--clean", help="Begin a new session with each connection.")
    ] = False,
    stays_s: Annotated[
        float, typer.Option(help="Seconds after which the client disconnects; 0: never.", min=0)
    ] = 0.0,
    away_s: Annotated[
        float, typer.Option(help="Seconds for which the client stays disconnected.", min=0)
    ] = 1.0,
    receive_maximum: Annotated[
        int, typer.Option(help="Receive Maximum of the client.", min=1, max=65_535)
    ] = 65_535,
    keep_alive_s: Annotated[
        int, typer.Option(help="Keep Alive; the client sends no PINGREQ. 0: none.", min=0)
    ] = 0,
    expiry_s: Annotated[
        int, typer.Option(help="Session Expiry Interval; 0: a day, or none with --clean.", min=0)
    ] = 0,
) -> None:
    """Subscribe."""
    expiry = expiry_s or (0 if clean else SESSION_EXPIRY)
    subscriber = Subscriber(name, topic_filter, qos, clean, receive_maximum, keep_alive_s, expiry)
    subscriber.run(port, stays_s, away_s)


class Subscriber:
    """A subscriber, with one session or successive ones. unreleased: identifiers of QoS 2 messages
    that are not released yet.
    """

    def __init__(
        self,
        name: str,
        topic_filter: str,
        qos: int,
        clean: bool,
        receive_maximum: int,
        keep_alive_s: int = 0,
        expiry_s: int = SESSION_EXPIRY,
    ) -> None:
        self._connect = Connect(
            name,
            clean,
            keep_alive_s,
            (
                (Property.SESSION_EXPIRY_INTERVAL, expiry_s),
                (Property.RECEIVE_MAXIMUM, receive_maximum),
            ),
        )
        self._subscribe = Subscribe(SUBSCRIBE_ID, ((topic_filter, qos),))
        self.unreleased: set[int] = set()
        self._under_way: set[int] = set()
        self._subscribed = False

    def run(self, port: int, stays_s: float, away_s: float) -> None:
        while True:
            try:
                with Connection(port, self._connect) as connection:
                    self._follow(connection, stays_s)
                    connection.disconnect()
                tell("left")
                time.sleep(away_s)
            except (OSError, PacketError) as error:
                tell("broken", why=str(error))
                time.sleep(RECONNECT_WAIT)

    def _follow(self, connection: Connection, stays_s: float) -> None:
        present = connection.connack.session_present
        self._under_way.clear()
        tell("connected", session_present=present)
        if not present:
            self.unreleased.clear()
            self._subscribed = False
        if not self._subscribed:
            tell("subscribing")
            connection.send(self._subscribe)
        until = time.monotonic() + stays_s if stays_s else float("inf")
        while (remaining_s := until - time.monotonic()) > 0:
            packets = connection.receive(min(remaining_s, LOOK_EVERY))
            self.begin(packets)
            for packet in packets:
                if answer := self.take(packet):
                    connection.send(answer)

    def begin(self, packets: Sequence[Packet]) -> None:
        """Note packets that arrived together. Call this before the first one is answered."""
        self._under_way |= {one.id for one in packets if isinstance(one, Publish) and one.qos}

    def take(self, packet: Packet) -> Packet | None:
        """Report a packet. Return its answer, or None if it needs no answer."""
        match packet:
            case Suback(id=identifier) if identifier == SUBSCRIBE_ID:
                self._subscribed = True
                tell("subscribed", granted=packet.reasons[0])
            case Publish():
                self._tell_received(packet)
                if packet.qos == 1:
                    self._under_way.discard(packet.id)
                    return Answer(Kind.PUBACK, packet.id)
                if packet.qos == 2:
                    self.unreleased.add(packet.id)
                    return Answer(Kind.PUBREC, packet.id)
            case Answer(kind=Kind.PUBREL, id=identifier):
                known = identifier in self.unreleased
                tell("released", id=identifier)
                self.unreleased.discard(identifier)
                self._under_way.discard(identifier)
                return Answer(Kind.PUBCOMP, identifier, 0 if known else 0x92)
        return None

    def _tell_received(self, packet: Publish) -> None:
        user = packet.user
        tell(
            "received",
            topic=packet.topic,
            qos=packet.qos,
            id=packet.id,
            dup=packet.dup,
            retain=packet.retain,
            under_way=len(self._under_way),
            again=packet.qos == 2 and packet.id in self.unreleased,
            sequence=int(user["seq"]) if user.get("seq", "").isdecimal() else None,
            payload=packet.payload.hex(),
        )


if __name__ == "__main__":
    app()
