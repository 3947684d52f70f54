"""Messages of a bridge that can never reach the other broker.

In: such a message, with the reason. Out: the message is in the store's table `aside` and in no
queue. The log names its topic and the reason. A person may discard or retry it (`onceway bridge`).
"""

from __future__ import annotations

import asyncio
import logging

from gateway.bridge.aside_rows import Aside, Bound, Message
from gateway.bridge.setting_aside import set_aside
from gateway.broker.fan_out import deliver
from gateway.broker.publish_run import PublishRun
from gateway.broker.queue_limits import is_full
from gateway.broker.session import Session
from gateway.config import BridgeSection
from gateway.errors import OncewayError
from gateway.mqtt.errors import quote
from gateway.mqtt.packets import Publish
from gateway.mqtt.properties import PropertyId, pass_through
from gateway.runtime.engine import Engine
from gateway.store import views

log = logging.getLogger(__name__)


class BridgeAside:
    """The messages that one bridge has set aside."""

    def __init__(self, engine: Engine, section: BridgeSection) -> None:
        self._engine = engine
        self._aside = Aside(engine.broker)
        self._section = section
        self._most = Bound(section.aside_messages, section.aside_bytes)
        self.set_aside = 0
        """Number of messages set aside since the start."""
        self.lost = 0
        """Number of messages dropped since the start because too many were set aside."""

    @property
    def kept(self) -> tuple[int, int]:
        """Number of messages that are set aside now, and their size in bytes as counted against the
        bound.
        """
        name = self._section.name
        return len(self._aside.numbers(name)), self._aside.size(name)

    def move(
        self, session: Session, identifier: int, kind: str, reason: str, *, received: bool
    ) -> bool:
        """Set aside the message in flight with this packet identifier. Return False if there is
        none. kind: the reason without numbers. received: whether the other broker may have received
        the message.
        """
        broker, name = self._engine.broker, self._section.name
        done = set_aside(broker, session, identifier, name, reason, self._most, received=received)
        if done is not None:
            self._tell(done.topic, kind, reason, done.lost)
        return done is not None

    def keep(self, packet: Publish, kind: str, reason: str) -> None:
        """Set aside a message at QoS 0 that was removed from its queue. kind: the reason without
        numbers.
        """
        broker, properties = self._engine.broker, packet.properties or {}
        expiry = properties.get(PropertyId.MESSAGE_EXPIRY_INTERVAL)
        message = Message(
            packet.topic,
            packet.payload,
            0,
            packet.retain,
            pass_through(properties),
            None if expiry is None else broker.now + expiry,
        )
        with broker.step:
            lost = self._aside.keep(self._section.name, message, reason, self._most, broker.utc)
        self._tell(packet.topic, kind, reason, lost)

    def _tell(self, topic: str, kind: str, reason: str, lost: int) -> None:
        """Count a message that was set aside, and log it once per burst. lost: number of older
        messages that were dropped for it.
        """
        allows, name = self._engine.broker.log_throttle.allows, self._section.name
        self.set_aside += 1
        self.lost += lost
        if allows(f"bridge {name} sets aside: {kind}"):
            log.warning(
                "bridge %s: a message to the topic %s is set aside: %s. Later messages are sent."
                " See: onceway bridge aside",
                name,
                quote(topic),
                reason,
            )
        if lost and allows(f"bridge {name} loses messages that are set aside"):
            log.warning(
                "bridge %s: too much is set aside (bridge.aside_messages, bridge.aside_bytes): the"
                " oldest messages are lost",
                name,
            )

    def discard(self, numbers: list[int]) -> int:
        """Delete messages for good. Return the number of deleted messages. numbers: empty for
        all.
        """
        broker, name = self._engine.broker, self._section.name
        aside = self._aside
        self._engine.begin()
        with broker.step:
            return sum(aside.forget(name, number) for number in numbers or aside.numbers(name))

    async def again(self, session: Session, numbers: list[int]) -> int:
        """Put messages back into the queue, in order. Return the number of messages put back.
        numbers: empty for all. Raises OncewayError if the queue has no room, or for a message at
        QoS 0 while the bridge is not connected.
        """
        engine, name = self._engine, self._section.name
        broker, data = engine.broker, engine.broker.config.gateway.data
        wanted = numbers or self._aside.numbers(name)
        rows = {row.number: row for row in await asyncio.to_thread(views.aside, data, name, wanted)}
        engine.begin()
        done = 0
        for number in wanted:
            row = rows.get(number)
            if row is None or number not in self._aside.numbers(name):
                continue
            qos = min(row.qos, self._section.qos)
            run = PublishRun(
                broker.router.topic(row.topic),
                row.payload,
                qos,
                bool(row.retain),
                properties=row.properties,
                expires=row.expires,
            )
            if session.ended or is_full(broker, session, run, 1):
                raise OncewayError(
                    f"the queue has no room for more messages; messages put back: {done}",
                    f"bridge {name}",
                    "Put back the others when fewer messages wait: onceway gateway status",
                )
            if not qos and session.connection is None:
                raise OncewayError(
                    f"a message at QoS 0 does not wait for a connection; messages put back: {done}",
                    f"bridge {name}",
                    "Try again when the bridge is connected: onceway gateway status",
                )
            flags = qos << 1 | row.retain
            with broker.step:
                self._aside.forget(name, number)
                deliver(broker, session, run, flags, b"", 0, 1, broker.promise() if qos else 0)
            done += 1
        return done
