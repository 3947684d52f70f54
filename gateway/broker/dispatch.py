"""What a client's bytes say: one packet after the other, and runs of alike ones in one step.

In: bytes that begin with a packet. Out: each packet has done to the connection what it means; and
where the first one starts that is not complete, or that waits: while the client does not take what
it is sent, and when the turn has taken long enough (`Connection.interrupted`). A run of PUBLISH
packets that differ in identifier and payload only, and a run of plain acknowledgements, are each
taken in one step (`burst.py`); every other packet goes through `gateway.mqtt.decode`.
"""

from __future__ import annotations

from struct import unpack
from typing import TYPE_CHECKING, cast

from gateway.broker import handshake, publishing, requests
from gateway.broker.burst import MAXIMUM, RETAIN, Burst
from gateway.broker.refusals import say
from gateway.broker.state import State, check
from gateway.mqtt.decode import decode
from gateway.mqtt.errors import MqttError, ProtocolError
from gateway.mqtt.packets import (
    Auth,
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    Version,
)
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.stream import packet_bounds

if TYPE_CHECKING:
    from gateway.broker.access import Ask, Refusal
    from gateway.broker.broker import Broker
    from gateway.broker.connection import Connection
    from gateway.broker.session import Session

_PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 0x40, 0x50, 0x62, 0x70
_REQUESTS = frozenset((0x80, 0xA0))
_ACKS = frozenset((_PUBACK, _PUBREC, _PUBREL, _PUBCOMP))
# First bytes of a PUBLISH without anything odd about it: QoS 0 without DUP, QoS 1, QoS 2.
_PUBLISHES = frozenset((0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D))


_NEW, _OPEN = State.NEW, State.OPEN
"""States in which packets are acted on."""

_MOST_WAITING = 65_536
"""Bytes that may come before CONNECT is answered."""


def receive(connection: Connection, data: bytes) -> None:
    """Bytes have come: act on every packet that is complete."""
    state, broker = connection.state, connection.broker
    if state is State.CLOSED:
        return
    if state is State.OPEN:
        connection.seen = broker.now
    broker.statistics.bytes_received += len(data)
    try:
        if state is State.ASKED:
            _wait(connection, data)
        else:
            _go_on(connection, data)
    except MqttError as error:
        _fail(connection, error)
    broker.settle()


def answered(broker: Broker, order: Ask, refused: Refusal | None) -> None:
    """It has been found out who a client is, or the connection has ended meanwhile."""
    connection = cast("Connection", order.connection)
    if connection.state is State.CLOSED:
        return
    connection.user = order.question.user
    try:
        if refused:
            raise handshake.refusal(connection, refused[1], refused[0])
        handshake.accept(connection, order.packet)
        data = connection.kept()
        if data and connection.state is State.OPEN:
            connection.seen = broker.now
            _go_on(connection, data)
    except MqttError as error:
        _fail(connection, error)
    broker.settle()


def _go_on(connection: Connection, data: bytes) -> None:
    if connection.keeps:
        connection.missing -= len(data)
        connection.keep(data)
        if connection.missing > 0:
            return
        data = connection.kept()
    at = take(connection, data)
    if at < len(data) and connection.state is not State.CLOSED:
        connection.keep(data[at:] if at else data)


def _wait(connection: Connection, data: bytes) -> None:
    """Keep what comes while it is found out who this is."""
    if connection.keep(data) > _MOST_WAITING:
        text = f"CONNECT: more than {_MOST_WAITING} bytes came before it was answered"
        raise ProtocolError(text, ReasonCode.QUOTA_EXCEEDED)


def _fail(connection: Connection, error: MqttError) -> None:
    """The client broke the protocol: say so where the version allows it, and close
    [MQTT-4.13.1-1].
    """
    if connection.session is None:
        handshake.refuse(connection, error)
    else:
        say(connection.broker, connection, error.code, str(error))
        connection.disconnect(error.code, str(error))


def take(connection: Connection, data: bytes) -> int:
    """Take packets from `data`; returns where the first incomplete one starts."""
    at, end = 0, len(data)
    effects, overtime = connection.broker.effects, connection.broker.overtime
    while end - at >= 2 and ((state := connection.state) is _OPEN or state is _NEW):
        if connection.full or connection.rest_s or overtime():
            connection.missing = 0
            return at
        first, length = data[at], data[at + 1]
        if length < 0x80 and length + 2 <= connection.our_limit:
            start = at + 2
            stop = start + length
        else:
            start, stop = packet_bounds(data, at, connection.our_limit)
            if not start:
                break
        session = connection.session
        if session is None:
            check(state, first)
        if stop > end:
            connection.missing = stop - end
            return at
        if session is None:
            packet = decode(first, data[start:stop], 0)
            assert isinstance(packet, Connect)  # noqa: S101 - `check` let nothing else through
            handshake.connect(connection, packet)
            at = stop
        elif first in _PUBLISHES:
            at = _publish(connection, session, data, at, start, stop, end) or _other(
                connection, session, data, at, start, stop
            )
        elif first in _ACKS and length == 2:
            at = _acks(connection, session, data, at, end)
        else:
            at = _other(connection, session, data, at, start, stop)
        if effects.waiting:
            connection.broker.settle()
    connection.missing = 1
    return at


def _publish(
    connection: Connection,
    session: Session,
    data: bytes,
    at: int,
    start: int,
    stop: int,
    end: int,
) -> int:
    """Take the PUBLISH at `at`, and those behind it that are alike. Returns where they end; 0 when
    there is something about this one that `decode` must see.
    """
    after_topic = start + 2 + (data[start] << 8 | data[start + 1]) if stop - start >= 2 else end
    topic = connection.topics.get(data[start:after_topic])
    if topic is None:
        return 0
    first = data[at]
    qos = first >> 1 & 3
    body = after_topic + 2 if qos else after_topic
    if connection.version == Version.V5:
        if body >= stop or data[body]:
            return 0
        body += 1
    elif body > stop:
        return 0
    stride = stop - at
    count, after = 1, stop
    if after + stride <= end and data[after] == first:
        alike = data[at:after_topic]
        marker, step = (body - 1 - at, 0) if connection.version == Version.V5 else (0, first)
        while (
            after + stride <= end
            and data.startswith(alike, after)
            and data[after + marker] == step
            and count < MAXIMUM
        ):
            after += stride
            count += 1
    raw = data[at:after] if after - at < end else data
    identifiers: tuple[int, ...] = ()
    if qos:
        offset = after_topic - at
        if count == 1:
            identifiers = (raw[offset] << 8 | raw[offset + 1],)
        else:
            joined = bytearray(2 * count)
            joined[0::2], joined[1::2] = raw[offset::stride], raw[offset + 1 :: stride]
            identifiers = unpack(f">{count}H", joined)
        if 0 in identifiers:
            return 0
    burst = Burst(
        topic,
        raw,
        qos,
        bool(first & RETAIN),
        count=count,
        stride=stride,
        id_at=after_topic - at if qos else 0,
        payload_at=body - at,
        publisher=session,
    )
    account = session.account
    if account is not None and account.metered:
        connection.meter(account, count, count * burst.size)
    publishing.receive(connection, session, burst, identifiers)
    return after


def _acks(connection: Connection, session: Session, data: bytes, at: int, end: int) -> int:
    """Take a run of equal acknowledgements with a packet identifier and nothing else."""
    kind, end = data[at], min(end, at + 4 * MAXIMUM)
    count = 1
    if data[at : at + 2] == data[at + 4 : at + 6]:
        heads, lengths = data[at:end:4], data[at + 1 : end : 4]
        count = min(
            len(heads) - len(heads.lstrip(heads[:1])),
            len(lengths) - len(lengths.lstrip(b"\2")),
            (end - at) // 4,
        )
    stop = at + 4 * count
    identifiers = (
        unpack(">" + "2xH" * count, data[at:stop])
        if count <= 64
        else unpack(f">{2 * count}H", data[at:stop])[1::2]
    )
    if 0 in identifiers:
        raise ProtocolError("an acknowledgement has the packet identifier 0")
    if kind == _PUBREL:
        publishing.release(connection, session, identifiers)
    else:
        send_flow = session.send_flow
        if kind == _PUBREC:
            publishing.recorded(connection, session, identifiers)
        elif kind == _PUBACK:
            send_flow.puback(identifiers)
        else:
            send_flow.pubcomp(identifiers)
        send_flow.pump()
        _feed(connection, session)
    return stop


def _other(
    connection: Connection, session: Session, data: bytes, at: int, start: int, stop: int
) -> int:
    """Take one packet the long way."""
    kind = data[at] & 0xF0
    check(connection.state, kind)
    most = connection.broker.limits.subscribe_bytes
    if kind in _REQUESTS and stop - at > most:
        text = f"a SUBSCRIBE or UNSUBSCRIBE of {stop - at} bytes, at most {most} are taken"
        raise ProtocolError(f"{text} (limits.subscribe_bytes)", ReasonCode.PACKET_TOO_LARGE)
    packet = decode(data[at], data[start:stop], connection.version)
    if isinstance(packet, Publish):
        publishing.decoded(connection, session, packet)
    elif isinstance(packet, Pingreq):
        _pong(connection)
    elif isinstance(packet, Subscribe):
        requests.subscribe(connection, session, packet)
    elif isinstance(packet, Unsubscribe):
        requests.unsubscribe(connection, session, packet)
    elif isinstance(packet, Disconnect):
        handshake.disconnect(connection, session, packet)
    elif isinstance(packet, Puback | Pubrec | Pubrel | Pubcomp):
        _ack(connection, session, packet)
    elif isinstance(packet, Auth):
        raise ProtocolError("AUTH: no authentication method was agreed on")
    return stop


def _pong(connection: Connection) -> None:
    """PINGRESP comes in its turn, but does not wait for a disk that fails: who waits for an
    acknowledgement would believe that we are gone. CONNACK is first in any case [MQTT-3.2.0-1].
    """
    broker = connection.broker
    if (
        broker.disk_full
        and connection.held
        and connection.greeted is not None
        and connection.greeted <= broker.committed
    ):
        connection.out.append(b"\xd0\0")
        if not connection.dirty:
            connection.dirty = True
            broker.dirty.append(connection)
    else:
        connection.send(b"\xd0\0")


def _ack(
    connection: Connection, session: Session, packet: Puback | Pubrec | Pubrel | Pubcomp
) -> None:
    """An acknowledgement with a reason code or properties."""
    identifiers = (packet.packet_id,)
    send_flow = session.send_flow
    if isinstance(packet, Pubrel):
        publishing.release(connection, session, identifiers)
        return
    if isinstance(packet, Puback):
        send_flow.puback(identifiers)
    elif isinstance(packet, Pubcomp):
        send_flow.pubcomp(identifiers)
    elif packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
        send_flow.refused(packet.packet_id)
    else:
        publishing.recorded(connection, session, identifiers)
    send_flow.pump()
    _feed(connection, session)


def _feed(connection: Connection, session: Session) -> None:
    """What is acknowledged may make room for retained messages."""
    if session.feed is not None:
        connection.broker.feed(session)
