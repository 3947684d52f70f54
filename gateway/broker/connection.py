"""One MQTT Network Connection of the broker: bytes in, bytes out, and its end.

In: packets to send, incomplete packets to keep, and `lost(reason)`. Out: `take()`, the bytes to
write now; `closing`, which is set if these bytes are the last ones.

A packet that must wait for a commit holds back all later packets, so each connection has one order
of packets. Only acknowledgements that wait for a second disk are ordered separately, since such a
wait may take hours. `dispatch.py` parses the client's bytes.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from gateway.access.peer import Peer
from gateway.access.rules import Acl, Policy
from gateway.broker.broker import Broker
from gateway.broker.lack import Lack
from gateway.broker.pause import Pause
from gateway.broker.pauses import client_key
from gateway.broker.publish_run import PublishRun, Topic
from gateway.broker.refusals import blame
from gateway.broker.session import NEXT, Session, State
from gateway.broker.will import StoredWill
from gateway.mqtt.encode import encode_within
from gateway.mqtt.errors import ProtocolError
from gateway.mqtt.message_ids import IDENTIFIERS
from gateway.mqtt.packets import Connack, Disconnect, Packet, Side, Version
from gateway.mqtt.properties import Properties, PropertyId
from gateway.mqtt.reason import SERVER_DISCONNECT_CODES, ReasonCode
from gateway.mqtt.runs import LARGE, PUBLISH, QOS_BITS, Piece
from gateway.mqtt.stream import PacketStream
from gateway.mqtt.wire import MAX_PACKET, pack_u16, pack_u32
from gateway.system.usage import origin

_SMALL = 4096
"""Number of bytes of an incomplete packet that a connection may always keep."""
_NAMES = 8
"""All topic names with an alias may together take 1 / _NAMES of `limits.memory_bytes`."""
_ALIAS_BYTES = 256
"""Overhead of an alias in addition to its name, in bytes."""
_NAMELESS = 8
"""All incomplete packets before a CONNECT may take 1 / _NAMELESS of `limits.memory_bytes`."""


class _Held:
    """Packets that wait for commit `number`. acknowledgements: number of PUBACKs and PUBRECs."""

    __slots__ = ("acknowledgements", "number", "packets")

    def __init__(self, number: int, packets: Piece, acknowledgements: int) -> None:
        self.number = number
        self.packets = [packets]
        self.acknowledgements = acknowledgements


class _Copied(NamedTuple):
    """Acknowledgements that wait until a commit is on two disks (`copied`), or behind such ones."""

    commit: int
    packets: bytes
    acknowledgements: int
    copied: bool


class Connection:
    __slots__ = (
        "alias_bytes",
        "aliases",
        "aliases_limit",
        "bridge",
        "broker",
        "client",
        "closing",
        "copied",
        "dirty",
        "full",
        "greeted",
        "identifies",
        "interrupted",
        "keep_alive",
        "kept",
        "named",
        "names",
        "out",
        "packet_limit",
        "pause",
        "peer",
        "pending",
        "pinged",
        "policy",
        "problem_information",
        "quota_pause_s",
        "reads_reasons",
        "receive_maximum",
        "seen",
        "sent_aliases",
        "sent_aliases_limit",
        "sequence",
        "session",
        "size",
        "state",
        "stream",
        "unread",
        "user",
        "version",
        "will",
    )

    def __init__(self, broker: Broker, peer: Peer, policy: Policy) -> None:
        limits = broker.limits
        self.broker = broker
        self.peer = peer
        self.policy = policy
        self.state = State.NEW
        self.closing: str | None = None
        """Reason of the close, for the log; None while the connection is open."""
        self.session: Session | None = None

        # from CONNECT
        self.version = 0
        self.client = ""
        self.user: str | None = None
        self.will: StoredWill | None = None
        self.bridge = False
        """Whether this client is a bridge, whose subscriptions get no_local and
        retain_as_published."""
        self.keep_alive = 0.0
        """Seconds of silence after which the connection ends, 0 for no limit."""
        self.packet_limit = MAX_PACKET
        """Largest packet that the client accepts, in bytes."""
        self.receive_maximum = IDENTIFIERS
        """Largest number of QoS 1 and 2 messages in flight from the client."""
        self.sent_aliases_limit = 0
        """Largest number of topic aliases that the client accepts."""
        self.named = False
        """Whether the client or the access rules, not the broker, chose the client identifier."""
        self.reads_reasons = False
        """Whether the client reads the reason codes of PUBACK and PUBREC."""
        self.identifies = False
        """Whether CONNACK announces that the broker accepts identities from this client."""
        self.problem_information = True
        """Whether the client wants Reason Strings."""

        # bytes in
        self.stream = PacketStream(
            min(policy.packet_bytes or limits.packet_bytes, limits.connect_bytes),
            topics=broker.router.topics,
            make=PublishRun,
            longest_request=limits.subscribe_bytes,
        )
        """Bytes that were received and are not processed yet."""
        self.kept = 0
        """Bytes in `stream` at the last call of `keep`."""
        self.interrupted = False
        """Whether `stream` may contain complete packets, for which the turn had no time."""
        self.seen = broker.now
        """Time of the last bytes from the client, in seconds on the broker's time axis."""
        self.unread = False
        """Whether the link has paused reading from the client."""
        self.quota_pause_s = 0.0
        """Seconds for which input waits because the user exceeds the quota's rate."""
        self.pinged = 0
        """Number of PINGREQ packets in `stream` that were answered already."""
        self.pause: Pause | None = None
        """The pause of a client whose publication was refused for now; None for other clients."""
        self.names = 0
        """Memory of the topic aliases that the client and the broker have set, in bytes."""
        self.aliases_limit = limits.topic_aliases
        """Highest topic alias that the client may use."""
        self.aliases: dict[int, Topic] = {}
        self.alias_bytes = 0
        """Bytes of the names in `aliases`."""
        self.sequence = peer.device.next_sequence if peer.device else 0
        """The last publication's sequence; at first the announced one, or 0 without a board."""

        # bytes out
        self.out: list[Piece] = []
        """Packets that may be written."""
        self.pending: deque[_Held] = deque()
        """Packets that wait for a commit, and all later packets."""
        self.copied: deque[_Copied] = deque()
        """Acknowledgements that wait for a second disk, and all later acknowledgements."""
        self.size = 0
        """Bytes in `out`, `pending` and `copied`."""
        self.dirty = False
        """Whether the connection is in `Broker.dirty`."""
        self.full = False
        """Whether too many bytes wait for the client, in the broker or in the link. If so, messages
        at QoS 1 and 2 wait, and messages at QoS 0 are dropped."""
        self.greeted: int | None = None
        """Number of the commit that CONNACK waits for; None before CONNECT was accepted."""
        self.sent_aliases: dict[bytes, int] = {}
        """Topic aliases that the broker has set, by encoded topic name."""
        broker.enter(self)

    # -- bytes out

    def send(self, packets: Piece, commit: int = 0, acknowledgements: int = 0) -> None:
        """Queue packets, to be written after commit `commit` and after all packets queued before. A
        closed connection drops them. acknowledgements: number of PUBACKs and PUBRECs in them.
        """
        if self.state is State.CLOSED:
            return
        broker, pending = self.broker, self.pending
        self.size += len(packets)
        if self.size > broker.limits.outgoing_bytes:
            self.full = True
        if commit > broker.committed and (not pending or pending[-1].number < commit):
            pending.append(_Held(commit, packets, acknowledgements))
            broker.waits.uncommitted.setdefault(commit, []).append(self)
        elif pending:
            last = pending[-1]
            last.packets.append(packets)
            last.acknowledgements += acknowledgements
        else:
            self.out.append(packets)
            if not self.dirty:
                self.dirty = True
                broker.dirty.append(self)
            if acknowledgements:
                self.session.receive_flow.unacknowledged -= acknowledgements  # type: ignore[union-attr]

    def acknowledge(
        self, packets: bytes, commit: int = 0, acknowledgements: int = 0, copied: bool = False
    ) -> None:
        """Queue PUBACK or PUBREC packets in the order of their publications [MQTT-4.6.0-2]. copied:
        whether to wait for a second disk, if one is required. Other arguments: as in `send`.
        """
        broker, neighbours = self.broker, self.broker.neighbours
        copied = copied and neighbours.second_disk is not None and neighbours.lacks(commit)
        if not copied and not self.copied:
            self.send(packets, commit, acknowledgements)
        elif self.state is not State.CLOSED:
            self.copied.append(_Copied(commit, packets, acknowledgements, copied))
            if copied:
                broker.waits.copied.setdefault(commit, []).append(self)

    def on_two_disks(self) -> None:
        """Release acknowledgements that no longer wait for a second disk."""
        waiting, lacks = self.copied, self.broker.neighbours.lacks
        while waiting and not (waiting[0].copied and lacks(waiting[0].commit)):
            copied = waiting.popleft()
            self.send(copied.packets, copied.commit, copied.acknowledgements)
        if self.pause is not None and not waiting:
            if self.pending:
                self.pause.after = self.pending[-1].number
            self.part()

    def on_disk(self, number: int) -> None:
        """Release packets that waited for this commit."""
        waiting, session = self.pending, self.session
        while waiting and waiting[0].number <= number:
            first = waiting.popleft()
            self.out += first.packets
            if not self.dirty:
                self.dirty = True
                self.broker.dirty.append(self)
            if session is not None:
                session.receive_flow.unacknowledged -= first.acknowledgements
        if session is not None and session.feed is not None:
            self.broker.feed(session)
        if self.pause is not None:
            self.part()

    def answer(self, packet: Packet, commit: int = 0) -> None:
        data = encode_within(packet, self.version, self.packet_limit)
        if data is None:
            text = "an answer is larger than the packets that the client accepts"
            self.disconnect(ReasonCode.PACKET_TOO_LARGE, text)
        else:
            self.send(data, commit)

    def take(self) -> Piece:
        """Return the bytes to write now: packets together, or one large payload. If more is to be
        written now, the connection stays dirty.
        """
        out, session = self.out, self.session
        if (count := len(out)) < 2 or self.size < LARGE:
            data = out[0] if count == 1 else b"".join(out)
            out.clear()
            self.dirty = False
        else:
            first = next((at for at, item in enumerate(out) if len(item) >= LARGE), len(out)) or 1
            data = out[0] if first == 1 else b"".join(out[:first])
            del out[:first]
            self.dirty = bool(out)
        self.size -= len(data)
        self.broker.statistics.bytes_sent += len(data)
        if session is not None and session.feed is not None:
            self.broker.feed(session)
        return data

    def shape(self, run: PublishRun, first: int, extra: bytes) -> tuple[bytes, bytes] | None:
        """Return the bytes of a run's packets before and after the packet identifier, up to the
        payload. None if the packets are too large for the client. first, extra: as for
        `PublishRun.shape`.
        """
        if run.expires is not None:
            extra += b"\x02" + pack_u32(max(0, round(run.expires - self.broker.now)))
        room = self.packet_limit - run.size - (2 if first & QOS_BITS else 0)
        if self.sent_aliases_limit:
            wire, known = run.topic.wire, len(self.sent_aliases)
            alias = self.sent_aliases.get(wire, 0)
            if alias or (known < self.sent_aliases_limit and self.remember(wire)):
                more = b"\x23" + pack_u16(alias or known + 1)
                shape = run.shape(first, True, extra + more, b"\0\0" if alias else wire)
                if len(shape[0]) + len(shape[1]) <= room:
                    self.sent_aliases[wire] = alias or known + 1
                    return shape
                if not alias:
                    self.forget(wire)
        shape = run.shape(first, self.version == Version.V5, extra)
        return shape if len(shape[0]) + len(shape[1]) <= room else None

    def resume_sending(self) -> None:
        """Continue to send. Call this when the link accepts bytes again."""
        self.full = self.size > self.broker.limits.outgoing_bytes
        if self.session is not None:
            self.session.send_flow.pump()
            self.broker.feed(self.session)

    def send_qos_0(self, run: PublishRun, flags: int, extra: bytes, skip: int, count: int) -> None:
        """Send `count` publications of a run at QoS 0, from index `skip` on. Drop them if too many
        bytes wait for the client, or if they are too large for the client.
        """
        statistics = self.broker.statistics
        if self.full:
            statistics.dropped += count
            return
        shape = self.shape(run, PUBLISH | flags, extra)
        if shape is None:
            statistics.too_large += count
            return
        statistics.sent[0] += count
        if run.size < LARGE:
            self.send(run.packets(shape, 0, skip, count))
            return
        for piece in run.pieces(shape, 0, skip, count):
            self.send(piece)

    # -- bytes in

    def attach(self, session: Session) -> None:
        """Bind the connection to the session of its client, because CONNECT was accepted."""
        broker = self.broker
        broker.partial_nameless -= self.kept
        broker.nameless.pop(self, None)
        broker.listeners[self.peer.listener] += 1
        if session.origin is not None:
            broker.attached.add(session.origin, 1)
        self.session = session
        self.become(State.OPEN)
        if session.foreign:
            self.stream.sender = Side.SERVER
        self.stream.maximum = self.policy.packet_bytes or broker.limits.packet_bytes
        if self.version == Version.V5:
            self.receive_maximum = self.policy.receive_maximum
        self.seen = broker.now
        if not self.reads_reasons and (record := broker.pauses.of(_key(self), broker.now)):
            self.pause = Pause(broker, _key(self), record, not self.named)

    def become(self, state: State) -> None:
        """Change to another state. Raises RuntimeError if the change is not allowed."""
        if state not in NEXT[self.state]:
            raise RuntimeError(f"a connection cannot go from {self.state} to {state}")
        self.state = state

    @property
    def is_accepted(self) -> bool:
        return self.session is not None

    @property
    def acl(self) -> Acl:
        return self.broker.acl

    def remember(self, wire: bytes) -> bool:
        """Count the memory of a topic name that gets an alias. If the names of all connections
        would take too much memory, count nothing and return False. Even then, each connection may
        have a few names."""
        broker, size = self.broker, _ALIAS_BYTES + len(wire)
        if (
            broker.names + size > broker.limits.memory_bytes // _NAMES
            and self.names + size > _SMALL
        ):
            return False
        self.names += size
        broker.names += size
        return True

    def forget(self, wire: bytes) -> None:
        """Subtract the memory of a topic name that no longer has an alias."""
        self.names -= _ALIAS_BYTES + len(wire)
        self.broker.names -= _ALIAS_BYTES + len(wire)

    def keep(self, kept: int) -> None:
        """Account for `kept` received bytes that are not processed yet. Raises ProtocolError if
        such bytes of all connections take too much memory, unless `kept` is at most _SMALL.
        """
        more = kept - self.kept
        if not more:
            return
        self.kept = kept
        broker = self.broker
        broker.partial += more
        most = broker.limits.memory_bytes
        if self.session is None:
            broker.partial_nameless += more
            if broker.partial_nameless > most // _NAMELESS:
                most = 0
        if more > 0 and broker.partial > most and kept > _SMALL:
            text = "incomplete packets take too much memory (limits.memory_bytes)"
            raise ProtocolError(text, ReasonCode.QUOTA_EXCEEDED)

    # -- publications that are refused for now

    def refuse_and_close(self, lack: Lack, topic: str, text: str) -> None:
        """Refuse a publication and end the connection. This is for clients that treat every reason
        code as success, MQTT versions without reason codes, and packets that cannot be read. The
        connection ends when earlier publications are acknowledged and the pause is over.
        """
        broker, pause = self.broker, self.pause
        if pause is None:
            pause = self.pause = Pause(broker, _key(self), None, not self.named)
        pause.farewell, pause.reason = text, lack.reason
        pause.bound, pause.topic = lack.bound, topic
        pause.after = self.pending[-1].number if self.pending else 0
        if pause.shared and (record := broker.pauses.of(pause.key, broker.now)) is not None:
            pause.until = record.over(broker.now)
        pause.forget_put_off()
        self.part()

    def part(self) -> None:
        """If a publication was refused with `refuse_and_close`, end the connection as soon as
        earlier acknowledgements have been sent and the pause is over.
        """
        pause, broker, neighbours = self.pause, self.broker, self.broker.neighbours
        if (
            pause is not None
            and pause.reason is not None
            and self.state is State.OPEN
            and broker.committed >= pause.after
            and broker.now >= pause.until
            and (not self.copied or neighbours.second_disk is None or neighbours.refuses)
        ):
            self.disconnect(pause.reason, pause.farewell)

    # -- the end

    def fail(self, error: Exception, doing: str) -> None:
        """End the connection because of an exception that left shared state consistent. It ends
        later, with the other effects (`effects.py`). Until then, nothing is sent to the client.
        """
        blame(self.broker, self, error, doing)
        if self.state is not State.CLOSED:
            self.full = True
            self.broker.effects.fault(self)

    @property
    def lingers(self) -> bool:
        """Whether the link closes only after the client has everything that was sent. If it closed
        at once while the client was sending, the client might lose the rest.
        """
        return self.pause is not None and bool(self.pause.farewell)

    def disconnect(self, reason: ReasonCode, text: str) -> None:
        """End the connection from the broker's side. text: for the log, and as Reason String for a
        client that wants it.
        """
        if self.state is State.CLOSED:
            return
        self.broker.statistics.disconnect(reason)
        packet = self._farewell(reason, text)
        self.end(text, will=True)
        if packet:
            self.out.append(packet)

    def lost(self, reason: str) -> None:
        """Handle the loss of the link: end the connection, publish the will, drop all output."""
        if self.state is not State.CLOSED:
            self.end(reason, will=True)
            self.broker.settle()
        self.out.clear()

    def end(self, reason: str, will: bool) -> None:
        """End the connection. Packets that wait for a commit are dropped, so the publications that
        they acknowledge count as unacknowledged. will: whether to publish the client's will.
        """
        broker = self.broker
        with broker.step:
            self.become(State.CLOSED)
            self.closing = reason
            self.pending.clear()
            self.copied.clear()
            self.keep(0)
            self.interrupted = False
            if self.pause is not None:
                self.pause.leave()
            self.aliases.clear()
            broker.names -= self.names
            if not self.dirty:
                self.dirty = True
                broker.dirty.append(self)
            broker.disconnected(self, will)

    @property
    def about(self) -> dict[str, str | None]:
        """Fields that name the client in structured logs; None for fields without a value."""
        device = self.peer.device.name if self.peer.device else None
        return {
            "client": self.client or None,
            "user": self.user,
            "device": device,
            "address": self.peer.address,
            "listener": self.peer.listener,
        }

    @property
    def name(self) -> str:
        """Name for logs: client identifier, if known, and address."""
        return f"{self.client} ({self.peer.address})" if self.client else self.peer.address

    # -- packets to the client

    def _farewell(self, reason: ReasonCode, text: str) -> bytes:
        """Return the broker's DISCONNECT. Return empty bytes before MQTT 5, in which a server sends
        no DISCONNECT, and before CONNACK was sent [MQTT-3.14.0-1].
        """
        if (
            self.version != Version.V5
            or self.greeted is None
            or self.greeted > self.broker.committed
        ):
            return b""
        if reason not in SERVER_DISCONNECT_CODES:
            reason = ReasonCode.UNSPECIFIED_ERROR
        return self.within(Disconnect(reason, self.problem(text)))

    def within(self, packet: Connack | Disconnect) -> bytes:
        """Encode a packet, if need be without Reason String; b"" if it is still too large."""
        return encode_within(packet, Version.V5, self.packet_limit) or b""

    def problem(self, text: str) -> Properties | None:
        """Return a Reason String if the client wants one. None for other clients and for boards."""
        if not self.problem_information or self.peer.device is not None:
            return None
        return {PropertyId.REASON_STRING: text}


def _key(connection: Connection) -> int:
    """Return the key of the pause that applies to a client (`pauses.py`)."""
    if connection.named:
        return client_key(connection.user, connection.client)
    return client_key(connection.user, "", origin(connection.peer.address))
