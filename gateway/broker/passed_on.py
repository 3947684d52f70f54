"""PUBLISH of another gateway of the site: taken once, for the clients of this gateway alone.

In: runs from the connection of such a gateway (`passage.py`). Out: deliveries and answers. It goes
to no other gateway, to no bridge, and into no spool: that is for the gateway where it was
published. What has no room here is not refused for good, since its publisher has been answered: the
connection ends, and the other gateway sends it again later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.addresses import NOTICES, read_address
from gateway.broker.fan_out import pass_on
from gateway.broker.late_messages import come, come_for_group
from gateway.broker.notices import heard
from gateway.broker.queue_limits import is_crowded
from gateway.broker.refusals import refused, say, words
from gateway.broker.state import State
from gateway.mqtt.encode import acknowledgements, encode
from gateway.mqtt.errors import quote
from gateway.mqtt.packets import Puback, Pubrec
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SYSTEM_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.broker.connection import Connection
    from gateway.broker.core import Core
    from gateway.broker.passage import Passage
    from gateway.broker.publish_run import PublishRun

_ANSWER = {1: 0x40, 2: 0x50}
"""PUBACK and PUBREC, by QoS."""


def receive(
    connection: Connection, passage: Passage, run: PublishRun, identifiers: Sequence[int] = ()
) -> None:
    """identifiers: say whom it is for (`addresses.py`)."""
    broker, mark = connection.broker, passage.mark
    broker.statistics.received[run.qos] += run.count
    if run.qos and mark is not None and (repeated := passage.repeated(run.ids)):
        broker.statistics.repeated += repeated
        answer = acknowledgements(_ANSWER[run.qos], run.ids[:repeated])
        connection.send(answer, mark.commit)
        run = run.part(repeated, run.count - repeated)
    if run.count:
        with broker.step:
            _take(connection, passage, run, identifiers)


def _take(
    connection: Connection, passage: Passage, run: PublishRun, identifiers: Sequence[int]
) -> None:
    broker, mark = connection.broker, passage.mark
    reason = _refuses(broker, run)
    if reason == ReasonCode.QUOTA_EXCEEDED and run.count > 1:
        half = run.count // 2
        _take(connection, passage, run.part(0, half), identifiers)
        if connection.state is State.OPEN:
            _take(connection, passage, run.part(half, run.count - half), identifiers)
    elif reason == ReasonCode.QUOTA_EXCEEDED:
        bound = "limits.memory_bytes" if is_crowded(broker, run) else "the disk is full"
        text = f"no room for what another gateway passes on ({bound})"
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
            mark.add(passage.number(run.ids[-1]))
            commit = broker.keep_mark(mark)
        _act(broker, passage, run, identifiers, commit)
        if run.qos:
            connection.send(acknowledgements(_ANSWER[run.qos], run.ids), commit)


def _act(
    core: Core, passage: Passage, run: PublishRun, identifiers: Sequence[int], commit: int
) -> None:
    to = read_address(identifiers)
    if run.topic.name == NOTICES:
        heard(core, passage.member, run.payloads())
    elif to is not None:
        come(core, passage.member, run, to, passage.shares.get(to.share, ""), commit)
    elif identifiers:
        share = passage.shares.get(identifiers[0], "")
        come_for_group(core, passage.member, run, identifiers[0], share, commit)
    else:
        pass_on(core, run, passage.member, None, commit)


def _refuses(core: Core, run: PublishRun) -> ReasonCode | None:
    topic = core.router.routed(run.topic)
    if (topic.refused and topic.name != NOTICES) or topic.name.startswith(SYSTEM_PREFIX):
        return ReasonCode.TOPIC_NAME_INVALID
    if run.qos and (
        core.lacks_room(run.count * run.weight) or (core.owed and is_crowded(core, run))
    ):
        return ReasonCode.QUOTA_EXCEEDED
    return None
