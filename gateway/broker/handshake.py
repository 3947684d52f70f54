"""CONNECT and DISCONNECT: how a connection gets its session and leaves it.

Rules: a second connection of a client takes the session over; the first one gets 0x8E and is closed
[MQTT-3.1.4-3]. Clean Start 1 ends the old session [MQTT-3.1.2-4], Clean Start 0 resumes it
[MQTT-3.1.2-5]. CONNACK states which of the two happened, after the commit of that change.

A device on a reliable link must use its name as client identifier. A device with another
incarnation has lost its memory and gets a new session, because new publications with old packet
identifiers would count as duplicates.

A session belongs to the user that began it, a device's session to the device. An anonymous session
ends when a user connects with its client identifier: its messages were for another client.
"""

from __future__ import annotations

import secrets

from gateway.access.peer import DeviceIdentity
from gateway.access.rules import Ask, SlowCheck
from gateway.broker.connection import Connection
from gateway.broker.refusals import refused, say
from gateway.broker.session import NEVER, Session, State
from gateway.broker.will import StoredWill
from gateway.config import IDENTITY, READS_REASON_CODES
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import MqttError, ProtocolError, quote
from gateway.mqtt.packets import Connack, Connect, Disconnect, Version, Will
from gateway.mqtt.properties import Properties, PropertyId, pass_through
from gateway.mqtt.reason import ReasonCode, connack_return_code
from gateway.mqtt.wire import MAX_PACKET
from gateway.system.usage import origin

_P = PropertyId


def connect(connection: Connection, packet: Connect) -> None:
    """Handle a CONNECT. Raises ProtocolError with the reason for CONNACK if it is refused."""
    broker, device = connection.broker, connection.peer.device
    connection.version, connection.bridge = packet.version, packet.bridge
    properties = packet.properties or {}
    connection.problem_information = bool(properties.get(_P.REQUEST_PROBLEM_INFORMATION, 1))
    connection.packet_limit = properties.get(_P.MAXIMUM_PACKET_SIZE, MAX_PACKET)
    connection.reads_reasons = (
        device is not None
        or connection.policy.reads_reasons
        or READS_REASON_CODES in properties.get(_P.USER_PROPERTY, ())
    )
    if _P.AUTHENTICATION_METHOD in properties:
        text = "no authentication method is offered here"
        raise refusal(connection, text, ReasonCode.BAD_AUTHENTICATION_METHOD)
    client = packet.client_id
    if device is not None and client != device.name:
        text = f"client identifier {client!r} is not the name of the device, {device.name!r}"
        raise refusal(connection, text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    most = broker.limits.client_id_bytes
    if len(client) > most or len(client.encode()) > most:
        text = f"the client identifier has more than {most} bytes (limits.client_id_bytes)"
        raise refusal(connection, text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    connection.client = client or f"onceway-{secrets.token_hex(8)}"
    connection.named = bool(client)
    decision = broker.admission.refuses(connection) or connection.policy.access.refuses_connect(
        connection, packet
    )
    if isinstance(decision, SlowCheck):
        connection.become(State.ASKED)
        broker.questions.append(Ask(connection, packet, decision))
    elif decision:
        raise refusal(connection, decision[1], decision[0])
    else:
        accept(connection, packet)


def accept(connection: Connection, packet: Connect, *, asked: bool = False) -> None:
    """Give an authenticated client its session. Raises ProtocolError if the session is refused.
    asked: whether the peer gateways have answered the session lookup (`neighbours.py`).
    """
    broker, device = connection.broker, connection.peer.device
    properties = packet.properties or {}
    if device is None:
        _check_user(connection, packet.client_id)
    client = connection.client
    will = _will(connection, packet.will) if packet.will else None
    expiry = _expiry(connection, packet, properties)
    if not asked and broker.neighbours.lookup is not None:
        broker.settle(client)
        if broker.neighbours.claim(connection, packet):
            return
    limits = broker.limits
    connection.sent_aliases_limit = min(
        properties.get(_P.TOPIC_ALIAS_MAXIMUM, 0), limits.topic_aliases
    )
    keep_alive = _keep_alive(connection, packet)
    connection.keep_alive = keep_alive * 1.5
    with broker.step:
        session, present = _session(connection, client, packet.clean_start, expiry)
        if device is not None:
            _mark(connection, session, device)
        connection.attach(session)
        session.connection = connection
        if session.account is not None:
            session.account.connections += 1
        session.departed = None
        session.send_flow.maximum = min(properties.get(_P.RECEIVE_MAXIMUM, 65535), limits.inflight)
        connection.will = will
        commit = broker.joined(session, connection.will)
    granted = _granted(connection, packet, properties, expiry, keep_alive)
    connection.answer(Connack(present, ReasonCode.SUCCESS, granted), commit)
    connection.greeted = commit
    if present and connection.state is State.OPEN:
        _resume(connection, session)
        broker.feed(session)


def _granted(
    connection: Connection, packet: Connect, properties: Properties, expiry: int, keep_alive: int
) -> Properties:
    """Return CONNACK's properties: limits, IDENTITY, and values that differ from the request."""
    granted: Properties = {}
    if connection.policy.receive_maximum < 65535:
        granted[_P.RECEIVE_MAXIMUM] = connection.policy.receive_maximum
    if connection.peer.device is None:
        connection.identifies = connection.policy.access.may_identify(connection)
        granted[_P.USER_PROPERTY] = [IDENTITY[connection.identifies]]
        granted[_P.MAXIMUM_PACKET_SIZE] = connection.stream.maximum
        if connection.aliases_limit:
            granted[_P.TOPIC_ALIAS_MAXIMUM] = connection.aliases_limit
    elif aliases := min(connection.policy.device_aliases, connection.aliases_limit):
        granted[_P.TOPIC_ALIAS_MAXIMUM] = aliases
    if expiry != properties.get(_P.SESSION_EXPIRY_INTERVAL, 0):
        granted[_P.SESSION_EXPIRY_INTERVAL] = expiry
    if keep_alive != packet.keep_alive:
        granted[_P.SERVER_KEEP_ALIVE] = keep_alive
    if not packet.client_id:
        granted[_P.ASSIGNED_CLIENT_IDENTIFIER] = connection.client
    return granted


def _mark(connection: Connection, session: Session, device: DeviceIdentity) -> None:
    """Use the board's anti-replay window from now on, if the board has proved its identity."""
    broker, mark = connection.broker, None
    if device.proved:
        mark = broker.marks.of(device.name, device.incarnation)
        mark.greeted(device.next_sequence)
    if session.receive_flow.use_mark(mark):
        broker.changes.flows[session] = None


def _check_user(connection: Connection, wanted: str) -> None:
    """Set the client identifier. Raises ProtocolError if the user may not have it, or may have no
    further connection or session. wanted: empty if the broker chooses.
    """
    broker = connection.broker
    chosen = connection.policy.access.identifier(connection, wanted)
    if isinstance(chosen, tuple):
        raise refusal(connection, chosen[1], chosen[0])
    connection.client = chosen or connection.client
    connection.named = connection.named or bool(chosen)
    session, account = broker.sessions.get(connection.client), broker.accounts.of(connection.user)
    joins = session is None or session.connection is None
    text = account.lacks(
        session=session is None or session.account is not account, connection=joins
    )
    owner = broker.origins.of(_origin(connection))
    present = len(broker.connections) - len(broker.nameless)
    if not text and joins and present >= broker.limits.connections:
        text = broker.admission.lacks_connection(owner, broker.dismiss)
    if not text and session is None:
        text = broker.admission.lacks_session(owner, broker.end_session)
    if text:
        raise refusal(connection, text, ReasonCode.QUOTA_EXCEEDED)


def _origin(connection: Connection) -> str:
    """Return the name of a client's origin; "" if the client has no network address."""
    user, address = connection.user, connection.peer.address
    if connection.peer.device is not None or ":" not in address:
        return ""
    return f"address {origin(address)}" if user is None else f"user {user}"


def refusal(connection: Connection, text: str, reason: ReasonCode) -> ProtocolError:
    return ProtocolError(f"CONNECT: {text}", reason, Version(connection.version))


def _expiry(connection: Connection, packet: Connect, properties: Properties) -> int:
    """Return the Session Expiry Interval in seconds. MQTT 5: the client's value, at most the limit.
    Older versions: 0 with Clean Session 1, else the limit."""
    limit = connection.broker.limits.session_expiry_s
    if connection.policy.keeps_sessions:
        limit = NEVER
    if packet.version == Version.V5:
        return int(min(properties.get(_P.SESSION_EXPIRY_INTERVAL, 0), limit))
    return 0 if packet.clean_start else limit


def _keep_alive(connection: Connection, packet: Connect) -> int:
    """Return the Keep Alive in seconds, 0 for none. Only MQTT 5 lets the broker change it."""
    limit = connection.policy.keep_alive_s
    if limit is None:
        limit = connection.broker.limits.keep_alive_s
    if not limit or packet.version < Version.V5 or 0 < packet.keep_alive <= limit:
        return packet.keep_alive
    return limit


def _session(
    connection: Connection, client: str, clean_start: bool, expiry: int
) -> tuple[Session, bool]:
    """Return the session for this connection, and whether it existed before."""
    broker, device = connection.broker, connection.peer.device
    incarnation = device.incarnation if device else 0
    broker.settle(client)
    session = broker.sessions.get(client)
    if (
        session is not None
        and device is None
        and (session.incarnation or session.user not in (None, connection.user))
    ):
        owner = "a board" if session.incarnation else "another user"
        text = f"client identifier {quote(client)} belongs to {owner}"
        raise refusal(connection, text, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    if session is not None and session.connection is not None:
        broker.fights.take_over(client, session.connection.peer.address, connection.peer.address)
        text = "another connection uses this client identifier"
        broker.hang_up(session.connection, ReasonCode.SESSION_TAKEN_OVER, text)
        broker.settle(client)
        session = broker.sessions.get(client)
    if session is not None and (
        clean_start
        or session.incarnation != incarnation
        or session.ends <= broker.now
        or session.user != connection.user
    ):
        if session.user != connection.user and not session.incarnation and device is None:
            say(broker, connection, ReasonCode.SUCCESS, "an earlier anonymous session ends")
        broker.end_session(session)
        session = None
    if session is None:
        user = connection.user
        session = broker.new_session(client, expiry, incarnation, user, _origin(connection))
        return session, False
    session.expiry = expiry
    return session, True


def _resume(connection: Connection, session: Session) -> None:
    """Retransmit packets that are in flight, in order [MQTT-4.4.0-1, MQTT-4.6.0-1]."""
    send_flow = session.send_flow
    if released := send_flow.flights.released:
        connection.send(
            b"".join(b"\x62\x02%c%c" % divmod(identifier, 256) for identifier in released)
        )
    send_flow.pump()


def _will(connection: Connection, will: Will) -> StoredWill | None:
    """Return the will to store; None if it is dropped. Raises ProtocolError if it is refused."""
    router = connection.broker.router
    with connection.broker.step:
        topic = router.topic(will.topic)
        router.match(topic)
    reason = topic.refused or connection.policy.access.refuses_publish(connection, topic.name)
    if reason is ReasonCode.NO_MATCHING_SUBSCRIBERS:
        return None
    if reason:
        text = f"the client may not publish its will to {quote(will.topic)}"
        raise refusal(connection, text, reason)
    properties = dict(will.properties or {})
    delay = properties.pop(_P.WILL_DELAY_INTERVAL, 0)
    expiry = properties.get(_P.MESSAGE_EXPIRY_INTERVAL)
    broker = connection.broker
    owner = broker.origins.of(_origin(connection))
    more = pass_through(properties), delay, expiry, None, owner
    stored = StoredWill(will.topic, will.payload, will.qos, will.retain, *more)
    added = stored.size - broker.size_of_will(connection.client)
    if not broker.will_use.fits(owner, added, broker.limits.will_bytes):
        text = "the wills take too much memory (limits.will_bytes)"
        raise refusal(connection, text, ReasonCode.QUOTA_EXCEEDED)
    if lack := broker.lacks_room(stored.size):
        raise refusal(connection, f"no room for the will: {lack}", ReasonCode.QUOTA_EXCEEDED)
    return stored


def refuse(connection: Connection, error: MqttError) -> None:
    """Answer a CONNECT that cannot be accepted, if its version was readable, and close."""
    version = error.version or connection.version
    reason, text = error.code, str(error)
    refused(connection.broker, connection, "connect", reason, text.removeprefix("CONNECT: "))
    packet = b""
    if version == Version.V5:
        packet = connection.within(Connack(False, reason, connection.problem(text)))
    elif version and connack_return_code(reason) is not None:
        packet = encode(Connack(False, reason), version)
    connection.end(text, will=False)
    if packet:
        connection.out.append(packet)


def disconnect(connection: Connection, session: Session, packet: Disconnect) -> None:
    broker = connection.broker
    expiry = (packet.properties or {}).get(_P.SESSION_EXPIRY_INTERVAL)
    if expiry is not None:
        if expiry and not session.expiry:  # the current CONNECT set 0
            raise ProtocolError("DISCONNECT: Session Expiry Interval was 0 and cannot be raised")
        session.expiry = min(expiry, broker.limits.session_expiry_s)
    connection.end(
        "the client disconnected",
        will=packet.reason == ReasonCode.DISCONNECT_WITH_WILL or packet.reason >= 0x80,
    )
