"""PUBLISH and the packets that follow it, between a connection and the flows of its session.

In: runs and acknowledgements from a connection. Out: routed publications, and the answers to the
client.

Rules: an answer is sent after the commit of the change that it confirms. A failure is reported in
PUBACK or PUBREC, never together with a success for the same PUBLISH. MQTT before version 5 has no
such report, so the connection is closed and nothing is acknowledged.

A temporary refusal (`lack.py`) ends the connection of a client that may take any PUBACK or PUBREC
for success, and a pause follows (README.md, "Publications that are refused").

A PUBLISH beyond the broker's Receive Maximum ends the connection with 0x93 [MQTT-3.3.4-7]. Before
MQTT 5 there is no Receive Maximum, so only the number of packet identifiers is a bound.
"""

from __future__ import annotations

from gateway.broker.connection import Connection
from gateway.broker.fan_out import explained, lacks, publish
from gateway.broker.lack import Bound, Lack
from gateway.broker.publish_run import PublishRun, Topic
from gateway.broker.refusals import refused, say, words
from gateway.broker.session import Session, State
from gateway.broker.spool import Identity
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import ProtocolError, quote
from gateway.mqtt.message_ids import sequence_of
from gateway.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Version
from gateway.mqtt.properties import Properties, PropertyId, pass_through
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.runs import acknowledgements
from gateway.mqtt.wire import encode_string
from gateway.system.usage import Account

_PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 0x40, 0x50, 0x62, 0x70
_ALIAS_BYTES = 128_000
"""Largest total size of the topic names of one client's aliases, in bytes."""
_ENDS = "; its connection ends, and nothing is read from the client for 1 to 30 s"
_TOO_FAST = (
    "its user publishes more than quota.messages_per_s or quota.bytes_per_s allow: the gateway"
    " reads from the client more slowly"
)


def receive(
    connection: Connection,
    session: Session,
    run: PublishRun,
    identity: Identity | None = None,
) -> None:
    """Process a run, at once or after a pause. identity: as stated in user properties, or None."""
    if session.foreign:
        session.role.receive(connection, run)
    elif (pause := connection.pause) is None or not run.qos or not pause.puts_off(run, identity):
        _take(connection, session, run, identity)


def go_on_after_pause(connection: Connection, session: Session) -> None:
    """After a pause, end the connection if this is due (`part`), else process the postponed runs,
    while the turn has time.
    """
    broker = connection.broker
    connection.part()
    while (
        connection.state is State.OPEN
        and (pause := connection.pause) is not None
        and (due := pause.next()) is not None
    ):
        _take(connection, session, *due)
        if broker.effects.waiting:
            broker.settle()
        if connection.full or broker.turn_is_over():
            connection.interrupted = True
            return


def meter(connection: Connection, account: Account, messages: int, size: int) -> None:
    """Count messages and bytes against the user's quota. Above the quota, reading pauses."""
    broker = connection.broker
    quota_pause_s = account.publishes(messages, size, broker.now)
    if quota_pause_s > 0:
        connection.quota_pause_s = quota_pause_s
        broker.statistics.quota_pauses += 1
        say(broker, connection, ReasonCode.QUOTA_EXCEEDED, _TOO_FAST)


def _take(
    connection: Connection,
    session: Session,
    run: PublishRun,
    identity: Identity | None = None,
) -> None:
    broker, identifiers = connection.broker, run.ids
    qos, count = run.qos, run.count
    broker.statistics.received[qos] += count
    if connection.peer.device is not None and identity is None and identifiers:
        if count > 1:  # each publication has its own sequence
            _one_by_one(connection, session, run)
            return
        device = connection.peer.device
        # the packet identifier is the low half of the sequence
        connection.sequence = sequence_of(identifiers[0], connection.sequence)
        identity = device.name, device.incarnation, connection.sequence
        payload = b"".join(run.payloads())
        connection.policy.access.heard(identity, payload, broker.monotonic)
    receive_flow = session.receive_flow
    if qos == 2 and receive_flow.is_duplicate(identifiers, connection.sequence):
        _take_again(connection, session, run)
        return
    room = connection.receive_maximum - receive_flow.outstanding if qos else count
    if room <= 0:
        text = f"PUBLISH: more than {connection.receive_maximum} QoS 1 and 2 messages in flight"
        raise ProtocolError(text, ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
    lack = _lacks(connection, session, run)
    reason = lack and lack.reason
    if (reason == ReasonCode.QUOTA_EXCEEDED or count > room) and _fitting(connection, session, run):
        _in_parts(connection, session, run)
        return
    if connection.peer.device is not None:
        _note_publication(connection, connection.peer.device.name, run, reason)
    if lack:
        _refuse(connection, session, run, lack)
        return
    if not qos:
        publish(broker, run, session.client, identity)
        return
    if qos == 1:
        receive_flow.unacknowledged += count
        commit = publish(broker, run, session.client, identity)
        connection.acknowledge(
            acknowledgements(_PUBACK, identifiers), commit, count, copied=run.topic.spooled
        )
    else:
        _take_at_qos_2(connection, session, run, identity)
    if connection.pause is not None and connection.pause.took(run):
        connection.pause = None


def _take_at_qos_2(
    connection: Connection, session: Session, run: PublishRun, identity: Identity | None
) -> None:
    broker, receive_flow = connection.broker, session.receive_flow
    broker.step.unfinished += 1
    if connection.peer.device is not None:
        receive_flow.outdate(run.ids[0])
    receive_flow.keep(run.ids)
    commit = 0
    if receive_flow.mark is not None:
        receive_flow.mark.add(connection.sequence)
        commit = receive_flow.commit = broker.keep_mark(receive_flow.mark)
    elif session.durable:
        commit = receive_flow.commit = broker.keep_flow(session)
    commit = publish(broker, run, session.client, identity, commit)
    broker.step.unfinished -= 1
    connection.acknowledge(acknowledgements(_PUBREC, run.ids), commit, copied=run.topic.spooled)


def _take_again(connection: Connection, session: Session, run: PublishRun) -> None:
    """Handle a QoS 2 run with duplicates, packet by packet. A duplicate only gets its PUBREC."""
    if run.count > 1:
        _one_by_one(connection, session, run)
        return
    receive_flow = session.receive_flow
    connection.broker.statistics.repeated += 1
    receive_flow.repeat(run.ids[0])
    connection.acknowledge(acknowledgements(_PUBREC, run.ids), receive_flow.commit, copied=True)


def _note_publication(
    connection: Connection, device: str, run: PublishRun, reason: ReasonCode | None
) -> None:
    """Report each publication of a run to the access rules. reason: None if it was accepted."""
    broker, note_publication = connection.broker, connection.policy.access.note_publication
    for payload in run.payloads():
        note_publication(device, run.topic.name, payload, reason, broker.monotonic, broker.utc)


def _lacks(connection: Connection, session: Session, run: PublishRun) -> Lack | None:
    """Return the reason why the publications of a run cannot all be accepted, or None."""
    receive_flow, broker = session.receive_flow, connection.broker
    reason = connection.policy.access.refuses_publish(connection, run.topic.name)
    if reason is not None:
        return Lack(reason)
    broker.step.unfinished += 1
    lack = lacks(broker, run, session.durable or receive_flow.mark is not None)
    broker.step.unfinished -= 1
    if run.qos == 2 and lack is None and not receive_flow.has_room(run.count):
        return Lack(ReasonCode.QUOTA_EXCEEDED, Bound.IDENTIFIERS)
    return lack


def _fitting(connection: Connection, session: Session, run: PublishRun) -> int:
    """Return how many publications at the start of a run can be accepted together. Return 0 if the
    first one alone is refused: then all are, because they differ only in payload.
    """
    accepted, refused = 0, run.count + 1
    if run.qos:
        room = connection.receive_maximum - session.receive_flow.outstanding
        refused = min(refused, room + 1)
    while accepted + 1 < refused:
        middle = (accepted + refused) // 2 if accepted else 1
        if _lacks(connection, session, run.part(0, middle)):
            refused = middle
        else:
            accepted = middle
    return accepted


def _in_parts(connection: Connection, session: Session, run: PublishRun) -> None:
    """Process a run in parts, each with as many publications as can be accepted together."""
    connection.broker.statistics.received[run.qos] -= run.count
    while run.count and connection.state is not State.CLOSED:
        part = _fitting(connection, session, run) or run.count
        _take(connection, session, run.part(0, part))
        run = run.part(part, run.count - part)


def _one_by_one(connection: Connection, session: Session, run: PublishRun) -> None:
    connection.broker.statistics.received[run.qos] -= run.count
    for index in range(run.count):
        if connection.state is State.CLOSED:
            return
        _take(connection, session, run.part(index, 1))


def decoded(connection: Connection, session: Session, packet: Publish) -> None:
    """Process a PUBLISH that has to be decoded in full: it has properties, a topic alias, or a
    topic that is new on this connection.
    """
    broker = connection.broker
    properties = packet.properties or {}
    alias = properties.get(PropertyId.TOPIC_ALIAS, 0)
    if alias > connection.aliases_limit:
        text = f"PUBLISH: topic alias {alias} is above {connection.aliases_limit}"
        raise ProtocolError(text, ReasonCode.TOPIC_ALIAS_INVALID)
    if packet.topic:
        wire = encode_string(packet.topic)
        with broker.step:
            topic: Topic = broker.router.known(wire, packet.topic)
        if alias:
            _name(connection, alias, topic)
    elif alias in connection.aliases:
        named = connection.aliases[alias]
        with broker.step:
            topic = broker.router.known(named.wire, named.name)
    else:
        raise ProtocolError(f"PUBLISH: topic alias {alias} has no topic yet")
    identifiers = properties.pop(PropertyId.SUBSCRIPTION_IDENTIFIER, ())
    expiry = properties.get(PropertyId.MESSAGE_EXPIRY_INTERVAL)
    run = PublishRun(
        topic,
        packet.payload,
        packet.qos,
        packet.retain,
        ids=(packet.packet_id,) if packet.qos else (),
        properties=pass_through(properties),
        expires=None if expiry is None else broker.now + expiry,
        publisher=session,
    )
    if session.foreign:
        session.role.receive(connection, run, identifiers)
        return
    account = session.account
    if account is not None and account.metered:
        meter(connection, account, 1, run.weight)
    receive(connection, session, run, _stated_identity(connection, session, properties))


def _name(connection: Connection, alias: int, topic: Topic) -> None:
    """Set the topic of an alias [MQTT-3.3.2-10]."""
    known = connection.aliases.get(alias)
    if known is not None:
        connection.forget(known.wire)
        connection.alias_bytes -= len(known.wire)
    connection.aliases[alias] = topic
    connection.alias_bytes += len(topic.wire)
    if connection.alias_bytes > _ALIAS_BYTES:
        text = f"PUBLISH: the names of topic aliases take more than {_ALIAS_BYTES} bytes"
        raise ProtocolError(text, ReasonCode.QUOTA_EXCEEDED)
    if not connection.remember(topic.wire):
        text = "PUBLISH: the names of the topic aliases of all clients take too much memory"
        raise ProtocolError(f"{text} (limits.memory_bytes)", ReasonCode.QUOTA_EXCEEDED)


def _stated_identity(
    connection: Connection, session: Session, properties: Properties
) -> Identity | None:
    """Return the identity that a client without a reliable link states in the user properties
    `incarnation` and `seq`. None unless both are whole numbers and the client may identify its
    publications.
    """
    pairs = dict(properties.get(PropertyId.USER_PROPERTY, ()))
    incarnation, sequence = pairs.get("incarnation", ""), pairs.get("seq", "")
    if connection.peer.device is not None or not (
        _is_number(incarnation, 10) and _is_number(sequence, 18)
    ):
        return None
    if not connection.policy.access.may_identify(connection):
        if connection.identifies:
            text = "PUBLISH: the access rules no longer accept incarnation and seq from this client"
            raise ProtocolError(text, ReasonCode.ADMINISTRATIVE_ACTION)
        return None
    return session.client, int(incarnation), int(sequence)


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= digits


def _refuse(connection: Connection, session: Session, run: PublishRun, lack: Lack) -> None:
    with connection.broker.step:
        lack = explained(connection.broker, run, lack)
    reason, text = lack.reason, _about(run, lack)
    ends = connection.version < Version.V5 or (lack.passes and not connection.reads_reasons)
    ends = ends and run.qos > 0 and reason >= ReasonCode.UNSPECIFIED_ERROR
    reply = f"{text}{_ENDS}" if ends else text
    refused(connection.broker, connection, "publish", reason, reply, run.count)
    if ends:
        connection.refuse_and_close(lack, run.topic.name, f"PUBLISH refused, {text}")
    if ends or not run.qos:
        return
    make = Puback if run.qos == 1 else Pubrec
    # bound the refusals that queue up after acknowledgements that wait for a second disk
    count = len(run.ids) if connection.copied else 0
    session.receive_flow.unacknowledged += count
    connection.acknowledge(
        b"".join(encode(make(identifier, reason), connection.version) for identifier in run.ids),
        acknowledgements=count,
    )


def _about(run: PublishRun, lack: Lack) -> str:
    text = f"topic {quote(run.topic.name)}: {words(lack.reason)}"
    return f"{text} ({lack.text})" if lack.text else text


def release(connection: Connection, session: Session, identifiers: tuple[int, ...]) -> None:
    """Handle PUBREL: forget the identifiers, and answer when that is on disk. A board gets its
    answer at once, because its sequences identify duplicates."""
    broker = connection.broker
    receive_flow = session.receive_flow
    broker.step.unfinished += 1
    unknown = receive_flow.release(identifiers)
    commit = receive_flow.commit
    if session.foreign:
        unknown, commit = session.role.release(identifiers)
    elif (mark := receive_flow.mark) is not None:
        unknown = [
            position
            for position in unknown
            if not mark.has(sequence_of(identifiers[position], connection.sequence))
        ]
    elif session.durable and len(unknown) < len(identifiers):
        if connection.peer.device is None:
            commit = receive_flow.commit = broker.keep_flow(session)
        else:  # nothing waits for this commit: sequences identify duplicates
            broker.changes.flows[session] = None
    broker.step.unfinished -= 1
    if not unknown:
        connection.send(acknowledgements(_PUBCOMP, identifiers), commit)
        return
    broker.statistics.unknown_releases += len(unknown)
    missing = set(unknown)
    wanted = [identifiers[position] for position in unknown]
    if broker.neighbours.release(connection, wanted):
        asked = set(wanted)
        identifiers = tuple(item for item in identifiers if item not in asked)
        if identifiers:
            connection.send(acknowledgements(_PUBCOMP, identifiers), commit)
        return
    for position, identifier in enumerate(identifiers):
        connection.answer(Pubcomp(identifier, _found(position not in missing)), commit)


def released(connection: Connection, identifier: int, elsewhere: bool) -> None:
    """Answer a PUBREL whose identifier this gateway does not know. Call this when the peer gateways
    have replied. elsewhere: whether one of them has released the identifier, on its disk.
    """
    if connection.state is State.OPEN:
        connection.answer(Pubcomp(identifier, _found(elsewhere)))


def _found(found: bool) -> ReasonCode:
    return ReasonCode.SUCCESS if found else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND


def recorded(connection: Connection, session: Session, identifiers: tuple[int, ...]) -> None:
    """Handle PUBRECs: release their messages, commit, then answer each with PUBREL."""
    broker = connection.broker
    broker.step.unfinished += 1
    known, unknown = session.send_flow.pubrec(identifiers)
    commit = broker.keep_flow(session) if session.durable and known else 0
    broker.step.unfinished -= 1
    if not unknown:
        connection.send(acknowledgements(_PUBREL, known), commit)
        return
    missing = set(unknown)
    for identifier in identifiers:
        connection.answer(Pubrel(identifier, _found(identifier not in missing)), commit)
