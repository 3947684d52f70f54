"""Bridges: sessions of this broker whose client is another broker.

In: the `[[bridge]]` sections. Out: for each a session with a queue on disk, from the start on, and
a connection to the other broker as often as that is there. A publication goes into that queue in
the same commit as into the spool; what the other broker acknowledges, it acknowledges to the
session. So after a power cut of ours the session goes on where it was: PUBREL for what had PUBREC,
PUBLISH with DUP and the same packet identifier for what had not.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress

from gateway.bridge.far import Far
from gateway.bridge.pairing import Pair, Pairing, forget
from gateway.bridge.status import BridgeStatus
from gateway.bridge.translate import Translator, refusal
from gateway.broker.session import NEVER, Session
from gateway.config import BRIDGE, INSIDE, BridgeSection
from gateway.errors import OncewayError
from gateway.mqtt.packets import (
    Ack,
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from gateway.mqtt.properties import Properties, PropertyId
from gateway.mqtt.reason import ReasonCode
from gateway.service.engine import Engine
from gateway.service.inside import Client

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 60.0
SETTLED_S = 10.0
"""A connection that held so long was a good one: the next try comes soon."""
_ONLY_NEW = 1
"""Retain Handling: retained messages for a new subscription alone."""
_TOPIC_ROOM = 8
"""Bytes that a longer topic may cost beside itself."""


class _Near(Client):
    """The session's client, as far as our broker knows."""

    def __init__(
        self, engine: Engine, section: BridgeSection, far: Far | None, hello: Properties
    ) -> None:
        self.came: Callable[[list[Packet]], None] = lambda packets: None
        self.ended: Callable[[], None] = lambda: None
        self._far = far
        self.high_water = Far.high_water
        connect = Connect(
            section.client,
            clean_start=False,
            properties={PropertyId.SESSION_EXPIRY_INTERVAL: NEVER} | hello,
        )
        super().__init__(engine, f"bridge {section.name}", INSIDE, self._one, connect)

    def _one(self, packet: Packet | None) -> None:
        if packet is None:
            self.ended()

    def write(self, data: bytes) -> None:
        self._stream.feed(data)
        self.came(list(self._stream))

    def take(self, packets: list[Packet]) -> None:
        """What the other broker says; not in the middle of our broker's work."""
        if packets:
            self._receive(*packets)

    def drained(self) -> None:
        if self._receiver is not None:
            self._receiver.writable()

    def pause_reading(self) -> None:
        if self._far is not None:
            self._far.pause_reading()

    def resume_reading(self) -> None:
        if self._far is not None:
            self._far.resume_reading()

    @property
    def unsent(self) -> int:
        return 0 if self._far is None else self._far.unsent


class Bridge:
    """One of them. Runs from `start` to `close`."""

    def __init__(self, engine: Engine, section: BridgeSection) -> None:
        self.section = section
        self._engine = engine
        self._pairing = Pairing(engine.broker.config.gateway.data, section.name)
        self._task: asyncio.Task[None] | None = None
        self._connected = False
        self._error = "not connected yet"
        self._sent = self._refused = self._received = 0
        self._down_since: float | None = None
        self._tries = 0
        self._subscribed: Pair | None = None

    async def start(self) -> None:
        """Returns when the session is there: from now on nothing is missed."""
        await self._ensure()
        self._task = asyncio.create_task(self._run())

    async def _ensure(self) -> None:
        """The session is there, with its subscriptions, whether the other broker is or not."""
        try:
            if self._session is None:
                self._pairing.draw()
            if wishes := self._wishes():
                await self._say(wishes)
        except OncewayError as error:
            self._fail(str(error))

    async def _say(self, packets: list[Packet]) -> None:
        """To our broker, and wait for its answers."""
        answers = 1 + len(packets)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def came(found: list[Packet]) -> None:
            nonlocal answers
            answers -= sum(not isinstance(packet, Publish) for packet in found)
            if answers <= 0 and not done.done():
                done.set_result(None)

        def ended() -> None:
            if not done.done():
                done.set_exception(OncewayError("our broker does not take the session"))

        near = _Near(self._engine, self.section, None, {PropertyId.RECEIVE_MAXIMUM: 1})
        near.came, near.ended = came, ended
        near.take(packets)
        try:
            await done
        finally:
            near.leave()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def status(self) -> BridgeStatus:
        session = self._session
        flow = session.send_flow if session is not None else None
        return BridgeStatus(
            self.section.name,
            self.section.server,
            None if self._connected else self._error,
            flow.messages if flow else 0,
            flow.size if flow else 0,
            self._sent,
            self._refused,
            flow.overflowed if flow else 0,
            self._received,
        )

    @property
    def _session(self) -> Session | None:
        return self._engine.broker.sessions.get(self.section.client)

    # -- the connection, again and again

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._connect()
            except OncewayError as error:
                self._fail(str(error))
            except Exception as error:
                log.exception("bridge %s: internal error", self.section.name)
                self._fail(f"internal error ({error})")
            if self._session is None:  # somebody has ended it
                await self._ensure()
            self._tries = 0 if loop.time() - began > SETTLED_S else self._tries + 1
            wait = min(2.0 ** min(self._tries, 16), LONGEST_WAIT_S)
            await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - jitter, no secret

    def _fail(self, error: str) -> None:
        self._connected = False
        if error != self._error or self._down_since is None:
            log.warning(
                "bridge %s: %s. Messages wait for it; trying again until it works",
                self.section.name,
                error.rstrip("."),
            )
        self._error = error
        if self._down_since is None:
            self._down_since = asyncio.get_running_loop().time()

    def _succeed(self) -> None:
        self._connected = True
        if self._down_since is not None:
            seconds = asyncio.get_running_loop().time() - self._down_since
            log.warning("bridge %s: connected after %.0f s", self.section.name, seconds)
            self._down_since = None
        else:
            log.info("bridge %s: connected to %s", self.section.name, self.section.server)

    async def _connect(self) -> None:
        """Connect, and serve until the end, which is an OncewayError."""
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def end(reason: str) -> None:
            if not ended.done():
                ended.set_result(reason)

        pair = self._pair()
        packet_bytes = self._engine.broker.limits.packet_bytes
        exchange = _Exchange(self, end)
        far = Far(exchange.from_far, end, exchange.drained, packet_bytes)
        try:
            answer = await far.open(self.section, self._name_there(pair))
            if pair.joined and not answer.session_present:
                self._pairing.draw()
                far.close(forget=True)
                raise OncewayError(
                    "the other broker has forgotten our session: what was under way may come twice"
                )
            if not pair.joined:
                await self._engine.forget_received(self.section.client)
                pair = self._pairing.join(pair)
            hello = self._hello(answer.properties or {})
            near = _Near(self._engine, self.section, far, hello)
            exchange.begin(far, answer, near)
            near.take(self._wishes())
            self._subscribe(far, pair)
            self._succeed()
            raise OncewayError(await ended)
        finally:
            exchange.end()
            far.close()

    def _pair(self) -> Pair:
        """A session that is not there any more must not be met again under its word."""
        held = self._pairing.read()
        return held if held is not None and self._session is not None else self._pairing.draw()

    def _name_there(self, pair: Pair) -> str:
        return f"{self._engine.broker.config.gateway.name}-{self.section.name}-{pair.word}"

    def _hello(self, theirs: Properties) -> Properties:
        """What the other broker can take, for our broker to heed."""
        if theirs.get(PropertyId.MAXIMUM_QOS, 2) < self.section.qos:
            raise OncewayError(
                f"takes no QoS {self.section.qos}",
                self.section.server,
                f"Write qos = {theirs[PropertyId.MAXIMUM_QOS]}, and give the bridge another name",
            )
        hello: Properties = {}
        if PropertyId.RECEIVE_MAXIMUM in theirs:
            hello[PropertyId.RECEIVE_MAXIMUM] = theirs[PropertyId.RECEIVE_MAXIMUM]
        if PropertyId.MAXIMUM_PACKET_SIZE in theirs:
            room = len(self.section.prefix.encode()) + _TOPIC_ROOM
            hello[PropertyId.MAXIMUM_PACKET_SIZE] = max(
                128, theirs[PropertyId.MAXIMUM_PACKET_SIZE] - room
            )
        return hello

    # -- subscriptions

    def _wishes(self) -> list[Packet]:
        """SUBSCRIBE and UNSUBSCRIBE for our broker, as far as the session lacks them."""
        section, session = self.section, self._session
        held = {} if session is None else session.subscriptions
        packets: list[Packet] = []
        if gone := sorted(set(held) - set(section.up)):
            packets.append(Unsubscribe(1, gone))
        new = [item for item in section.up if item not in held or held[item].qos != section.qos]
        if new:
            packets.append(Subscribe(2, [_wish(item, section.qos) for item in new]))
        return packets

    def _subscribe(self, far: Far, pair: Pair) -> None:
        """The same for the other broker, whose messages come below the prefix."""
        section = self.section
        wanted = [section.prefix + item for item in section.down]
        gone = sorted(set(pair.down) - set(wanted))
        self._subscribed = self._pairing.subscribe(pair, (*wanted, *gone))
        if gone:
            far.send([Unsubscribe(1, gone)])
        if wanted:
            far.send([Subscribe(2, [_wish(item, section.qos) for item in wanted])])

    def unsubscribed(self) -> None:
        """The other broker sends no more of what is not wanted any more."""
        if (pair := self._subscribed) is not None:
            wanted = tuple(self.section.prefix + item for item in self.section.down)
            with suppress(OncewayError):  # it is said again next time
                self._pairing.subscribe(pair, wanted)

    # -- counts

    def count(self, packet: Ack) -> None:
        """An answer of the other broker to a message of ours."""
        failed = packet.reason >= ReasonCode.UNSPECIFIED_ERROR
        if isinstance(packet, Pubcomp) or (isinstance(packet, Puback) and not failed):
            self._sent += 1
        elif failed:
            self._refused += 1
            log.warning(
                "bridge %s: the other broker refuses a message for good: %s",
                self.section.name,
                packet.reason.name,
            )

    def count_sent(self) -> None:
        """A message that nobody acknowledges."""
        self._sent += 1

    def count_received(self) -> None:
        self._received += 1

    def look_at(self, packet: Suback) -> None:
        """What became of our wishes."""
        for item, reason in zip(self.section.down, packet.reasons, strict=False):
            if reason >= ReasonCode.UNSPECIFIED_ERROR:
                log.warning(
                    "bridge %s: the other broker refuses the subscription to %s: %s",
                    self.section.name,
                    self.section.prefix + item,
                    reason.name,
                )


class _Exchange:
    """Packets between the two, while there is a connection. ended: called with the reason."""

    def __init__(self, bridge: Bridge, ended: Callable[[str], None]) -> None:
        self._bridge = bridge
        self._ended = ended
        self._far: Far | None = None
        self._near: _Near | None = None
        self._translator = Translator(bridge.section.prefix, True)

    def begin(self, far: Far, answer: Connack, near: _Near) -> None:
        retain = (answer.properties or {}).get(PropertyId.RETAIN_AVAILABLE, 1)
        self._translator = Translator(self._bridge.section.prefix, bool(retain))
        self._far, self._near = far, near
        near.came = self._from_near
        near.ended = lambda: self._ended("our broker has ended the session's connection")
        far.listen()

    def end(self) -> None:
        if self._near is not None:
            self._near.leave()

    def drained(self) -> None:
        if self._near is not None:
            self._near.drained()

    def from_far(self, packets: list[Packet]) -> None:
        near, far = self._near, self._far
        if near is None or far is None:
            return
        inward: list[Packet] = []
        for packet in packets:
            if isinstance(packet, Publish):
                self._bridge.count_received()
                found = self._translator.to_near(packet)
                if found is not None:
                    inward.append(found)
                elif (answer := refusal(packet)) is not None:
                    far.send([answer])
            elif isinstance(packet, Ack):
                if packet.reason == ReasonCode.QUOTA_EXCEEDED and not isinstance(packet, Pubcomp):
                    self._ended("the other broker has no room for more (QUOTA_EXCEEDED)")
                    break
                if isinstance(packet, Puback | Pubrec | Pubcomp):
                    self._bridge.count(packet)
                inward.append(packet)
            elif isinstance(packet, Suback):
                self._bridge.look_at(packet)
            elif isinstance(packet, Unsuback):
                self._bridge.unsubscribed()
        near.take(inward)

    def _from_near(self, packets: list[Packet]) -> None:
        if self._far is None:
            return
        outward: list[Packet] = []
        for packet in packets:
            if isinstance(packet, Publish | Ack):
                outward.append(self._translator.to_far(packet))
                if isinstance(packet, Publish) and not packet.qos:
                    self._bridge.count_sent()
            elif isinstance(packet, Connack) and packet.reason:
                self._ended(f"our broker does not take the session ({packet.reason.name})")
        if outward:
            self._far.send(outward)


def _wish(topic_filter: str, qos: int) -> Subscription:
    """Nothing that came from there goes there again [MQTT-3.8.3-3]."""
    return Subscription(topic_filter, qos, True, True, _ONLY_NEW)


class Bridges:
    """All of a configuration."""

    def __init__(self, engine: Engine, sections: list[BridgeSection]) -> None:
        self._engine = engine
        self._bridges = [Bridge(engine, section) for section in sections]

    async def start(self) -> None:
        """End the sessions of bridges that are gone, and start the others."""
        wanted = {bridge.section.client for bridge in self._bridges}
        for client in list(self._engine.broker.sessions):
            if client.startswith(BRIDGE) and client not in wanted:
                await self._engine.end_session(client)
        names = frozenset(bridge.section.name for bridge in self._bridges)
        with suppress(OSError):
            forget(self._engine.broker.config.gateway.data, names)
        for bridge in self._bridges:
            await bridge.start()

    async def close(self) -> None:
        for bridge in self._bridges:
            await bridge.close()

    @property
    def status(self) -> list[BridgeStatus]:
        return [bridge.status for bridge in self._bridges]
