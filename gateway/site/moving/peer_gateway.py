"""A peer gateway of the site, as a session of this broker: messages for its subscribers wait in the
session's queue, and its forwarded messages arrive over its connection.

In: runs (consecutive PUBLISH packets) from that connection. Out: deliveries and answers. Each
message is accepted once, only for clients of this gateway. The gateway to which the message was
published serves all other receivers: its bridges, its spool, and the other gateways. If this
gateway has no room for a message, the connection ends, and the peer gateway sends the message again
later. The message is not refused, because the publisher has already got an acknowledgement.

The peer gateway sends in the order of its numbers and never reuses one, so the highest accepted
number identifies duplicates. That number is stored as an anti-replay window, in the commit that
contains the message. Each queue at the peer has its own window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from gateway.access.rules import Acl
from gateway.broker.connection import Connection
from gateway.broker.core import Core
from gateway.broker.marks import Mark
from gateway.broker.publish_run import NOTICES, PublishRun
from gateway.broker.queue_limits import is_crowded
from gateway.broker.refusals import refused, say, words
from gateway.broker.session import Attached, Role, Session, State
from gateway.mqtt.encode import encode
from gateway.mqtt.errors import quote
from gateway.mqtt.message_ids import IDENTIFIERS, packet_id
from gateway.mqtt.packets import Puback, Pubrec
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.runs import acknowledgements
from gateway.mqtt.topics import SYSTEM_PREFIX
from gateway.site.moving.addresses import read_address
from gateway.site.moving.late_messages import forward, receive, receive_for_share
from gateway.site.moving.notices import heard

_ANSWER = {1: 0x40, 2: 0x50}
"""First byte of the answer to a PUBLISH, by QoS: PUBACK or PUBREC."""


class PeerGateway(Role):
    __slots__ = ("latest", "mark", "member", "shares")

    def __init__(self, member: str, shares: Mapping[int, str]) -> None:
        self.member = member
        self.mark: Mark | None = None
        """Anti-replay window for the messages of the peer's present queue, which arrive here; None
        while this gateway does not know the queue.
        """
        self.latest = 0
        """Number of the newest message that the peer had in flight when it last sent data. All its
        messages in flight have numbers less than 65,535 below this one, so the packet identifier of
        a message gives its full number.
        """
        self.shares = shares
        """Shared subscriptions of this gateway, by the Subscription Identifier that stands for
        each.
        """

    def number(self, identifier: int) -> int:
        return self.latest - (packet_id(self.latest) - identifier) % IDENTIFIERS

    def is_accepted(self, identifier: int) -> bool:
        return self.mark is not None and self.number(identifier) <= self.mark.highest

    def repeated(self, identifiers: tuple[int, ...]) -> int:
        """Return the number of duplicates among these identifiers. The identifiers are in order, so
        duplicates come first.
        """
        count = 0
        while count < len(identifiers) and self.is_accepted(identifiers[count]):
            count += 1
        return count

    @property
    def gets_copies(self) -> bool:
        return False

    def may_read(self, acl: Acl, session: Session, topic: str) -> bool:
        """Return True: the peer gateway checks its own clients."""
        return True

    def receive(
        self, connection: Attached, run: PublishRun, identifiers: Sequence[int] = ()
    ) -> None:
        """Process a run (consecutive PUBLISH packets). identifiers: Subscription Identifiers that
        name the receiver (`addresses.py`).
        """
        connection, mark = cast("Connection", connection), self.mark
        broker = connection.broker
        broker.statistics.received[run.qos] += run.count
        if run.qos and mark is not None and (repeated := self.repeated(run.ids)):
            broker.statistics.repeated += repeated
            answer = acknowledgements(_ANSWER[run.qos], run.ids[:repeated])
            connection.send(answer, mark.commit)
            run = run.part(repeated, run.count - repeated)
        if run.count:
            with broker.step:
                _take(connection, self, run, identifiers)

    def release(self, identifiers: Sequence[int]) -> tuple[list[int], int]:
        unknown = [at for at, item in enumerate(identifiers) if not self.is_accepted(item)]
        return unknown, self.mark.commit if self.mark is not None else 0


def _take(
    connection: Connection, peer: PeerGateway, run: PublishRun, identifiers: Sequence[int]
) -> None:
    broker, mark = connection.broker, peer.mark
    reason = _refuses(broker, run)
    if reason == ReasonCode.QUOTA_EXCEEDED and run.count > 1:
        half = run.count // 2
        _take(connection, peer, run.part(0, half), identifiers)
        if connection.state is State.OPEN:
            _take(connection, peer, run.part(half, run.count - half), identifiers)
    elif reason == ReasonCode.QUOTA_EXCEEDED:
        lack = broker.lacks_room(run.count * run.weight)
        bound = "limits.memory_bytes" if is_crowded(broker, run) else lack
        text = f"no room for messages that another gateway forwards ({bound})"
        say(broker, connection, reason, text)
        connection.disconnect(reason, text)
    elif reason:
        text = f"topic {quote(run.topic.name)}: {words(reason)}"
        refused(broker, connection, "publish", reason, text, run.count)
        make = Puback if run.qos == 1 else Pubrec
        for identifier in run.ids:
            connection.send(encode(make(identifier, reason), connection.version))
    else:
        commit = 0
        if run.qos and mark is not None:
            mark.add(peer.number(run.ids[-1]))
            commit = broker.keep_mark(mark)
        _act(broker, peer, run, identifiers, commit)
        if run.qos:
            connection.send(acknowledgements(_ANSWER[run.qos], run.ids), commit)


def _act(
    core: Core, peer: PeerGateway, run: PublishRun, identifiers: Sequence[int], commit: int
) -> None:
    to = read_address(identifiers)
    if (call := core.router.routed(run.topic).heard) is not None:
        call(run)
    if run.topic.name == NOTICES:
        heard(core, peer.member, run.payloads())
    elif to is not None:
        receive(core, peer.member, run, to, peer.shares.get(to.share, ""), commit)
    elif identifiers:
        share = peer.shares.get(identifiers[0], "")
        receive_for_share(core, run, identifiers[0], share, commit)
    else:
        forward(core, run, peer.member, commit)


def _refuses(core: Core, run: PublishRun) -> ReasonCode | None:
    topic = core.router.routed(run.topic)
    if (topic.refused and topic.name != NOTICES) or topic.name.startswith(SYSTEM_PREFIX):
        return ReasonCode.TOPIC_NAME_INVALID
    if run.qos and (
        core.lacks_room(run.count * run.weight) or (core.to_drop and is_crowded(core, run))
    ):
        return ReasonCode.QUOTA_EXCEEDED
    return None
