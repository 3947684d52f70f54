"""`$SYS`: the broker's own figures as topics, with mosquitto's names.

In: figures of the broker, every few seconds while a client has subscribed. Out: a QoS 0 message for
each figure that has changed, and the last message of each figure for later subscribers. The
messages exist in memory only: nothing goes to the disk or into the spool.

Rules: only a filter that begins with `$SYS` gets these messages [MQTT-4.7.2-1]. Only the broker
publishes to `$SYS`. An ACL defines which clients may read. Counters begin at the start of the
gateway. `messages` counts PUBLISH packets only.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway import __version__
from gateway.broker.broker import Broker
from gateway.broker.fan_out import publish
from gateway.broker.publish_run import PublishRun
from gateway.broker.retained import Retained, RetainedMessages
from gateway.mqtt.topics import SYSTEM_PREFIX


class SystemTopics:
    """The topics, for the subscribers of `broker`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        broker.system_messages = self.current
        self._messages = RetainedMessages()
        self._due = broker.now

    def advance(self) -> None:
        """Publish changes to subscribers. Call this about once a second."""
        broker = self._broker
        if broker.router.begins(SYSTEM_PREFIX):
            for item in self._look():
                publish(broker, PublishRun(broker.router.topic(item.topic), item.payload), "")
            broker.settle()

    def current(self) -> RetainedMessages:
        """Return the last message of each topic, for a new subscriber."""
        self._look()
        return self._messages

    def _look(self) -> list[Retained]:
        """If an update is due, update the messages, and return those that have changed."""
        broker, interval = self._broker, self._broker.config.gateway.sys_interval_s
        if not interval or broker.now < self._due:
            return []
        self._due = broker.now + interval
        looked = [
            Retained(f"{SYSTEM_PREFIX}/broker/{name}", "", 0, str(text).encode())
            for name, text in figures(broker).items()
        ]
        changed = [item for item in looked if self._messages.get(item.topic) != item]
        for item in changed:
            self._messages.put(item)
        return changed


def figures(broker: Broker) -> dict[str, str | int]:
    """Return the figures by topic, without the common prefix."""
    statistics, found = broker.statistics, take_figures(broker)
    received, sent = sum(statistics.received), sum(statistics.sent)
    return {
        "version": f"onceway version {__version__}",
        "uptime": f"{broker.monotonic // 1_000_000} seconds",
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
        "subscriptions/count": broker.router.count,
        "retained messages/count": broker.retained.count,
        "store/messages/count": found.queued,
        "store/messages/bytes": broker.queued,
        "spool/messages/count": broker.spool.count,
        "spool/messages/bytes": broker.spool.size,
    }


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """Figures of all sessions. They are collected on demand, so that no message pays for them."""

    sessions: int
    connected: int
    durable: int
    queued: int
    """Messages in all queues, including messages in flight."""
    longest: int
    inflight: int
    """Messages that were sent and are not fully acknowledged."""


def take_figures(broker: Broker) -> SessionFigures:
    """Collect the figures. For 10,000 sessions, this takes some milliseconds."""
    sessions = connected = durable = queued = longest = inflight = 0
    for session in broker.sessions.values():
        send_flow = session.send_flow
        if not session.foreign:
            sessions += 1
            connected += session.connection is not None
            durable += session.durable
        if send_flow.messages or send_flow.flights.released:  # most sessions have no messages
            queued += send_flow.messages
            inflight += send_flow.flights.count
            longest = max(longest, send_flow.messages)
    return SessionFigures(sessions, connected, durable, queued, longest, inflight)
