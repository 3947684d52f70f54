"""Processing of a client's bytes, one packet or one run of packets at a time.

In: bytes of a link, which `gateway.mqtt.stream` cuts into packets and runs. Out: the effect of each
packet or run on the connection. Further bytes wait if the client does not read its output, or if
the turn is over (`Connection.interrupted`). A run (PUBLISH packets that differ only in identifier
and payload, or plain acknowledgements) is handled in one step.
"""

from __future__ import annotations

from typing import cast

from gateway.access.rules import Ask, Refusal
from gateway.broker import exchanges, handshake, requests
from gateway.broker.connection import Connection
from gateway.broker.lack import Lack
from gateway.broker.publish_run import PublishRun
from gateway.broker.refusals import say
from gateway.broker.session import Session, State
from gateway.mqtt.errors import MqttError, ProtocolError
from gateway.mqtt.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
)
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.runs import Acks

_PUBACK, _PUBREC, _PUBREL = 0x40, 0x50, 0x62
_FIRST_BYTES = {Puback: _PUBACK, Pubrec: _PUBREC, Pubrel: _PUBREL, Pubcomp: 0x70}

_MOST_WAITING = 65_536
"""Largest number of bytes that may arrive after CONNECT, until CONNECT is answered."""


def receive(connection: Connection, data: bytes) -> None:
    """Add bytes from the client, and process every packet that is complete now."""
    state, broker = connection.state, connection.broker
    if state is State.CLOSED:
        return
    broker.statistics.bytes_received += len(data)
    try:
        connection.stream.feed(data)
        if state is State.ASKED:
            _wait(connection)
        else:
            if state is State.OPEN:
                connection.seen = broker.now
            _go_on(connection)
            if connection.quota_pause_s > 0 and (pings := connection.stream.pings_ahead()):
                connection.pinged += pings
                connection.send(b"\xd0\0" * pings)
    except MqttError as error:
        _fail(connection, error)
    if broker.effects.waiting:
        broker.settle()


def answered(order: Ask, refused: Refusal | None) -> None:
    """Continue a CONNECT after its check, unless the connection has ended in the meantime."""
    connection = cast("Connection", order.connection)
    if connection.state is State.CLOSED:
        return
    connection.user = order.question.user
    _accept(connection, order.packet, refused)


def placed(connection: Connection, packet: Connect, refused: Refusal | None) -> None:
    """Continue a CONNECT after the session lookup, unless the connection has ended meanwhile."""
    if connection.state is not State.CLOSED:
        _accept(connection, packet, refused, asked=True)


def _accept(
    connection: Connection, packet: Connect, refused: Refusal | None, *, asked: bool = False
) -> None:
    broker = connection.broker
    try:
        if refused:
            raise handshake.refusal(connection, refused[1], refused[0])
        handshake.accept(connection, packet, asked=asked)
        if connection.state is State.OPEN and connection.stream.pending:
            connection.seen = broker.now
            _go_on(connection)
    except MqttError as error:
        _fail(connection, error)
    broker.settle()


def _go_on(connection: Connection) -> None:
    """Process complete packets until the turn is over, and account for the remaining bytes."""
    broker, stream = connection.broker, connection.stream
    effects = broker.effects
    connection.interrupted = False
    if connection.pause is not None and connection.session is not None:
        exchanges.go_on_after_pause(connection, connection.session)
    goes_on = not connection.interrupted and connection.state is not State.CLOSED
    while goes_on and stream.fresh:
        if (
            connection.full
            or connection.quota_pause_s > 0
            or broker.turn_is_over()
            or (connection.pause is not None and connection.pause.stops_reading)
        ):
            connection.interrupted = True
            break
        session = connection.session
        account = session and session.account
        metered = account if account and account.metered else None
        found = stream.take(metered.longest_run) if metered else stream.take()
        if found is None:
            break
        if session is None:
            handshake.connect(connection, cast("Connect", found))  # a stream begins with CONNECT
        elif isinstance(found, PublishRun):
            found.publisher = session
            if metered:
                exchanges.meter(connection, metered, found.count, found.count * found.weight)
            exchanges.receive(connection, session, found)
        elif isinstance(found, Acks):
            _acks(connection, session, found.first, found.ids)
        else:
            _other(connection, session, cast("Packet", found))
        if effects.waiting:
            broker.settle()
        if connection.state is not State.OPEN:
            break
    if connection.state is not State.CLOSED:
        connection.keep(stream.pending)


def _wait(connection: Connection) -> None:
    """Keep bytes that arrive while a CONNECT is checked; raise ProtocolError for too many."""
    kept = connection.stream.pending
    connection.keep(kept)
    if kept > _MOST_WAITING:
        text = f"CONNECT: more than {_MOST_WAITING} bytes arrived before it was answered"
        raise ProtocolError(text, ReasonCode.QUOTA_EXCEEDED)


def _fail(connection: Connection, error: MqttError) -> None:
    """Handle a client's protocol error: report it if possible, and close [MQTT-4.13.1-1]."""
    if connection.session is None:
        handshake.refuse(connection, error)
    else:
        text = str(error)
        if error.code == ReasonCode.PACKET_TOO_LARGE:
            text += " (limits.packet_bytes, limits.subscribe_bytes)"
        say(connection.broker, connection, error.code, text)
        if error.code == ReasonCode.PACKET_TOO_LARGE:  # its client sends it again later
            connection.refuse_and_close(Lack(error.code), "", text)
        else:
            connection.disconnect(error.code, text)


def _acks(
    connection: Connection, session: Session, first: int, identifiers: tuple[int, ...]
) -> None:
    """Handle acknowledgements. first: first byte of the packets; 0 for a PUBREC with an error."""
    if first == _PUBREL:
        exchanges.release(connection, session, identifiers)
        return
    send_flow, step = session.send_flow, connection.broker.step
    if first == _PUBREC:
        exchanges.recorded(connection, session, identifiers)
    else:
        step.unfinished += 1
        if first == _PUBACK:
            send_flow.finish(send_flow.flights.acknowledging, identifiers)
        elif first:
            send_flow.pubcomp(identifiers)
        else:
            send_flow.finish(send_flow.flights.receiving, identifiers[:1])
        step.unfinished -= 1
    send_flow.pump()
    if session.feed is not None:  # there may be room for retained messages
        connection.broker.feed(session)


def _other(connection: Connection, session: Session, packet: Packet) -> None:
    if isinstance(packet, Publish):
        exchanges.decoded(connection, session, packet)
    elif isinstance(packet, Pingreq):
        if connection.pinged:
            connection.pinged -= 1
        else:
            _pong(connection)
    elif isinstance(packet, Subscribe):
        requests.subscribe(connection, session, packet)
    elif isinstance(packet, Unsubscribe):
        requests.unsubscribe(connection, session, packet)
    elif isinstance(packet, Disconnect):
        handshake.disconnect(connection, session, packet)
    elif isinstance(packet, Puback | Pubrec | Pubrel | Pubcomp):
        refuses = isinstance(packet, Pubrec) and packet.reason >= ReasonCode.UNSPECIFIED_ERROR
        first = 0 if refuses else _FIRST_BYTES[type(packet)]
        _acks(connection, session, first, (packet.packet_id,))
    elif isinstance(packet, Auth):
        raise ProtocolError("AUTH: no authentication method was agreed on")


def _pong(connection: Connection) -> None:
    """Queue PINGRESP after the packets that wait. If the disk fails, send it at once, so that the
    client does not conclude that the broker is dead. CONNACK is first in any case [MQTT-3.2.0-1].
    """
    broker = connection.broker
    if (
        broker.disk_lack
        and connection.pending
        and connection.greeted is not None
        and connection.greeted <= broker.committed
    ):
        connection.out.append(b"\xd0\0")
        connection.size += 2
        if not connection.dirty:
            connection.dirty = True
            broker.dirty.append(connection)
    else:
        connection.send(b"\xd0\0")
