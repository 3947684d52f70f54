"""`$SYS`: the broker's own figures as topics, under the names that mosquitto's users know.

In: a look at the broker every few seconds, while anybody wants to know. Out: a QoS 0 message for
each figure that has changed, and the last one of each for those who subscribe later. They are made
at each start: nothing of them goes to the disk or into the spool.

Rules: a filter gets them only when it begins with `$SYS` [MQTT-4.7.2-1]; nobody but the broker
publishes there, and an ACL says who may read (`access.py`). Counters begin with the start of the
core. `messages` are PUBLISH packets here: others are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway import __version__
from gateway.broker.core import Core
from gateway.broker.fan_out import publish
from gateway.broker.publish_run import PublishRun
from gateway.broker.retained import Retained, RetainedMessages
from gateway.mqtt.topics import SYSTEM_PREFIX


class SystemTopics:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._messages = RetainedMessages()
        self._due = core.now

    def advance(self) -> None:
        """Tell those who have subscribed. To be called about once a second."""
        core = self._core
        if core.router.begins(SYSTEM_PREFIX):
            for item in self._look():
                publish(core, PublishRun(core.router.topic(item.topic), item.payload), "")

    def current(self) -> RetainedMessages:
        """The last message of each topic, for one who has just subscribed."""
        self._look()
        return self._messages

    def _look(self) -> list[Retained]:
        """When it is time to, bring the messages up to date; returns those that have changed."""
        core, interval = self._core, self._core.config.gateway.sys_interval_s
        if not interval or core.now < self._due:
            return []
        self._due = core.now + interval
        looked = [
            Retained(f"{SYSTEM_PREFIX}/broker/{name}", "", 0, str(text).encode())
            for name, text in figures(core).items()
        ]
        changed = [item for item in looked if self._messages.get(item.topic) != item]
        for item in changed:
            self._messages.put(item)
        return changed


def figures(core: Core) -> dict[str, str | int]:
    """By topic, without what they have in common."""
    statistics, found = core.statistics, take_figures(core)
    received, sent = sum(statistics.received), sum(statistics.sent)
    return {
        "version": f"onceway version {__version__}",
        "uptime": f"{core.monotonic // 1_000_000} seconds",
        "clients/total": found.sessions,
        "clients/connected": found.connected,
        "clients/disconnected": found.sessions - found.connected,
        "messages/received": received,
        "messages/sent": sent,
        "bytes/received": statistics.bytes_received,
        "bytes/sent": statistics.bytes_sent,
        "publish/messages/received": received,
        "publish/messages/sent": sent,
        "publish/messages/dropped": statistics.dropped
        + statistics.overflowed
        + statistics.expired
        + statistics.too_large,
        "publish/messages/refused": statistics.refused("publish"),
        "subscriptions/count": core.router.count,
        "retained messages/count": core.retained.count,
        "store/messages/count": found.queued,
        "store/messages/bytes": core.queued,
        "spool/messages/count": core.spool.count,
        "spool/messages/bytes": core.spool.size,
    }


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """One look at all sessions: what would cost every message something if it were counted as it
    goes by.
    """

    sessions: int
    connected: int
    durable: int
    queued: int
    """Messages in all queues, what is in flight included."""
    longest: int
    """Messages in the longest queue."""
    inflight: int
    """Messages sent and not yet acknowledged to the end."""


def take_figures(core: Core) -> SessionFigures:
    """Some milliseconds for 10,000 sessions."""
    connected = durable = queued = longest = inflight = 0
    for session in core.sessions.values():
        send_flow = session.send_flow
        connected += session.connection is not None
        durable += session.durable
        if send_flow.messages or send_flow.released:  # most have nothing
            queued += send_flow.messages
            inflight += send_flow.inflight
            longest = max(longest, send_flow.messages)
    return SessionFigures(len(core.sessions), connected, durable, queued, longest, inflight)
