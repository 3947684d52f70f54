"""Bridges: sessions of this broker whose client is another broker.

In: the `[[bridge]]` sections. Out: for each a session with a queue on disk, from the start on, and
a connection to the other broker whenever that is reachable. A publication enters the queue in the
same commit as the spool. Acknowledgements of the other broker go to the session.

So after a power cut here the session continues where it was: PUBREL for messages with PUBREC, and
PUBLISH with DUP and the same packet identifier for the others. A message that can never reach the
other broker moves from the queue to the messages that are set aside (`aside.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from gateway.bridge.aside import BridgeAside
from gateway.bridge.converge import Convergence, Link
from gateway.bridge.exchange import Exchange, NearClient
from gateway.bridge.far import FarConnection
from gateway.bridge.pairing import Pair, Pairing, forget
from gateway.bridge.pauses import Pauses
from gateway.bridge.setting_aside import take_out
from gateway.bridge.status import SAMPLE_S, BridgeStatus, QueueAge
from gateway.bridge.suspects import ANSWER_S, HOLD_S, TIMES, Release, Suspects
from gateway.bridge.translate import Unfit
from gateway.broker.exchanges import pass_through
from gateway.broker.fan_out import explained, lacks
from gateway.broker.publish_run import PublishRun
from gateway.broker.session import Session
from gateway.config import BRIDGE, BridgeSection
from gateway.errors import OncewayError
from gateway.mqtt.errors import quote
from gateway.mqtt.packets import (
    Ack,
    Packet,
    Pingreq,
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
from gateway.mqtt.wire import encode_string
from gateway.runtime.engine import Engine

log = logging.getLogger(__name__)

_ONLY_NEW = 1
"""Retain Handling: retained messages only for a new subscription."""
_LAST_IDENTIFIER = 65_535
"""Packet identifiers of requests count down from this number, away from those of messages."""
_MOST_LOOPS = 16
"""Largest number of loops that are logged, each with the bridge that closes it."""

_Request = tuple[bool, str]
"""Whether to subscribe or unsubscribe, and a filter at the other broker."""


class Bridge:
    """One bridge. Runs from `start` to `close`."""

    def __init__(self, engine: Engine, section: BridgeSection) -> None:
        self.section = section
        self._engine = engine
        self._pairing = Pairing(engine.broker.config.gateway.data, section.name)
        self._task: asyncio.Task[None] | None = None
        self._connected = False
        self._error = "not connected yet"
        self._last_error: str | None = None
        self._sent = self._refused = self._dropped = self._received = 0
        self.aside = BridgeAside(engine, section)
        self.retained = Convergence(engine, section)
        self._age = QueueAge()
        self._sampler: asyncio.TimerHandle | None = None
        self._suspects = Suspects()
        self._in_flight = 65_535
        """Limit of messages in flight, set by the other broker."""
        self._most_qos = 2
        """Maximum QoS of the other broker."""
        self._released: set[int] = set()
        """Packet identifiers of messages that are set aside and wait for PUBCOMP."""
        self._asked: dict[int, _Request] = {}
        """Requests to the other broker, by packet identifier."""
        self._given_up: set[_Request] = set()
        """Requests at which the other broker closes the connection."""
        self._not_taken = 0
        """Messages from the other broker that our broker can never accept, since the start."""
        self._looped = 0
        """Messages that came back in a loop of bridges and were stopped, since the start."""
        self._unconfirmed = 0
        """Messages given up at their PUBREL since the start. They may have arrived."""
        self._start_over: Callable[[str], None] = lambda reason: None
        """Callback with a reason to end the connection and the session at the other broker."""
        self._loops: set[str] = set()
        """Bridges that returned messages; each is logged once."""
        self._lacking: dict[str, str] = {}
        """Filters that the other broker refuses, with the reason."""
        self._down_since: float | None = None
        self._pauses = Pauses()
        self.progress = self._pauses.progress
        self.no_room = self._pauses.told
        self._subscribed: Pair | None = None
        self._near: NearClient | None = None
        self._exchange: Exchange | None = None
        self._established = False
        """Whether messages were sent on the latest connection."""

    async def start(self) -> None:
        """Start the bridge. On return its session exists, so no later message is missed."""
        await self._ensure()
        self._sample()
        self._task = asyncio.create_task(self._run())

    def _sample(self) -> None:
        """Take a sample of the queue, again and again."""
        loop = asyncio.get_running_loop()
        if (session := self._session) is not None:
            flow = session.send_flow
            self._age.sample(loop.time(), flow.next - flow.messages, flow.next)
        self._sampler = loop.call_later(SAMPLE_S, self._sample)

    async def _ensure(self) -> None:
        """Create the session and its subscriptions, whether or not the other broker is
        reachable.
        """
        try:
            if self._session is None:
                self._pairing.draw()
            if packets := self._subscribe_packets():
                await self._say(packets)
        except OncewayError as error:
            self._fail(str(error))

    async def _say(self, packets: list[Packet]) -> None:
        """Send packets to our broker, and wait for the answers."""
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

        near = NearClient(self._engine, self.section, None, {PropertyId.RECEIVE_MAXIMUM: 1})
        near.came, near.ended = came, ended
        near.take(packets)
        try:
            await done
        finally:
            near.leave()

    async def close(self) -> None:
        if self._sampler is not None:
            self._sampler.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.retained.close()

    @property
    def status(self) -> BridgeStatus:
        session = self._session
        flow = session.send_flow if session is not None else None
        age = None
        if flow is not None and flow.messages:
            now = asyncio.get_running_loop().time()
            age = self._age.seconds(now, flow.next - flow.messages)
        return BridgeStatus(
            self.section.name,
            self.section.server,
            None if self._connected else self._error,
            flow.messages if flow else 0,
            flow.size if flow else 0,
            self._sent,
            self._refused,
            self._dropped + (flow.overflowed if flow else 0),
            self._received,
            self.aside.set_aside,
            self.aside.lost,
            *self.aside.kept,
            tuple(self._lacking),
            unconfirmed=self._unconfirmed,
            not_taken=self._not_taken,
            held=len(self._exchange.held) if self._exchange is not None else 0,
            looped=self._looped,
            retained=self.retained.state,
            differ=self.retained.differ,
            agreed=len(self.retained.agreement),
            retained_here=self.retained.here,
            retained_there=self.retained.there,
            oldest_s=age,
            last_error=self._last_error,
        )

    @property
    def _session(self) -> Session | None:
        return self._engine.broker.sessions.get(self.section.client)

    # -- the connection, again and again

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began, self._established = loop.time(), False
            try:
                await self._connect()
            except OncewayError as error:
                self._fail(str(error))
            except Exception as error:
                log.exception("bridge %s: internal error", self.section.name)
                self._fail(f"internal error ({error})")
                self._pauses.told()
            if self._session is None:  # an administrator may have ended it
                await self._ensure()
            on_trial = self._established and self._suspects.tries_suspects
            suspects = self._suspects.in_a_row if on_trial else None
            await asyncio.sleep(self._pauses.next(loop.time() - began, suspects))

    def _fail(self, error: str) -> None:
        self._connected = False
        is_news = error != self._error or self._down_since is None
        if is_news and self._may_log(error):
            log.warning(
                "bridge %s: %s. Messages wait for it; trying again until it works",
                self.section.name,
                error.rstrip("."),
            )
        self._error = self._last_error = error
        if self._down_since is None:
            self._down_since = asyncio.get_running_loop().time()

    def _succeed(self) -> None:
        self._connected = True
        if self._down_since is not None:
            seconds = asyncio.get_running_loop().time() - self._down_since
            if self._may_log("connected"):
                log.warning("bridge %s: connected after %.0f s", self.section.name, seconds)
            self._down_since = None
        else:
            log.info("bridge %s: connected to %s", self.section.name, self.section.server)

    def _may_log(self, what: str) -> bool:
        """Whether a line may be logged: once per burst, for a line that breaks again and again."""
        return self._engine.broker.log_throttle.allows(f"bridge {self.section.name} {what}")

    async def _connect(self) -> None:
        """Connect, and serve until the end of the connection, which raises OncewayError."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[str, bool]] = loop.create_future()
        anew = False

        def end(reason: str, blamed: bool = False) -> None:
            if not ended.done():
                ended.set_result((reason, blamed))

        def start_over(reason: str) -> None:
            nonlocal anew
            anew = True
            end(reason)

        self._start_over = start_over
        pair = self._pair()
        packet_bytes = self._engine.broker.limits.packet_bytes
        exchange = self._exchange = Exchange(self, self._suspects, loop.time, end)
        far = FarConnection(exchange.from_far, end, exchange.drained, packet_bytes)
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
            requests = self._requests(pair)
            if self._has_suspects(requests):
                await self._try_without_messages(far, requests, ended)
                requests = []
                if self._suspects.tries_suspects:
                    hello[PropertyId.RECEIVE_MAXIMUM] = 1
            crossings = await self.retained.crossings()
            near = self._near = NearClient(self._engine, self.section, far, hello)
            self._established = True
            exchange.begin(far, answer, near, self._mark(pair), crossings)
            near.take(self._subscribe_packets())
            for request in requests:
                if (packet := self._request(request, far)) is not None:
                    far.send(packet)
            self._succeed()
            if (answer.properties or {}).get(PropertyId.RETAIN_AVAILABLE, 1):
                name, known = self._name_there(pair), answer.session_present
                mark, tries, lost = self._mark(pair), self._tries_any, self._lost
                self.retained.begin(Link(far, near, crossings, mark, name, known, tries, lost))
            raise OncewayError((await ended)[0])
        finally:
            self._suspects.ended(ended.done() and ended.result()[1], loop.time())
            if far.told:
                self._pauses.told()
            self._near = self._exchange = None
            self.retained.end()
            exchange.end()
            far.close(forget=anew)

    # -- suspects (`gateway/bridge/suspects.py`)

    def _has_suspects(self, requests: list[_Request]) -> bool:
        """Whether a message, release or request has to be sent alone."""
        session = self._session
        again = session.send_flow.to_resend if session is not None else set()
        released = session.send_flow.released if session is not None else {}
        self._suspects.keep([*again, *map(Release, released), *requests])
        return self._suspects.tries_suspects

    def _tries_any(self) -> bool:
        return self._suspects.tries_suspects

    def _lost(self) -> int:
        """Return the number of messages that were lost or refused in either direction."""
        session = self._session
        full = 0 if session is None else session.send_flow.overflowed
        return full + self._dropped + self._not_taken + self.aside.set_aside

    async def _try_without_messages(
        self, far: FarConnection, requests: list[_Request], ended: asyncio.Future[tuple[str, bool]]
    ) -> None:
        """Subscribe to one filter at a time, and check that the connection lasts for a while."""
        for request in requests:
            if (packet := self._request(request, far)) is not None:
                answer = await far.ask(packet, ANSWER_S)
                if isinstance(answer, Suback | Unsuback):
                    self.subscribed(answer)
        await asyncio.wait([ended], timeout=HOLD_S)
        await far.ask(Pingreq(), ANSWER_S)
        if ended.done():
            raise OncewayError(ended.result()[0])

    def suspect_answered(self) -> None:
        """Send as many messages at a time as usual, because the last suspect was answered."""
        near = self._near

        def widen() -> None:
            session = self._session
            if near is not None and near is self._near and session is not None:
                self._engine.begin()
                flow = session.send_flow
                flow.maximum = min(self._in_flight, self._engine.broker.limits.inflight)
                flow.pump()

        self._soon("the bridge sends more at a time", widen)

    def held_back(self) -> None:
        """Give up the guilty releases that are held back, if no other release waits for PUBCOMP.

        The other broker may keep such an identifier forever, and would treat a later message as the
        old one. So a new session begins at the other broker, with a new word that is on disk before
        the identifier may be used again. Messages that wait for PUBREL at the other broker would be
        lost with the session.
        """
        near = self._near

        def give_up() -> None:
            session = self._session
            if near is None or near is not self._near or session is None:
                return
            released = tuple(session.send_flow.released)
            if not released or not all(map(self._suspects.guilty, map(Release, released))):
                return
            try:
                self._pairing.draw()
            except OncewayError as error:
                self._start_over(str(error))
                return
            near.leave()  # no message leaves for the session that ends there
            self._engine.begin()
            with self._engine.broker.step:
                session.send_flow.pubcomp(released)
            self._give_up(released)
            self._start_over("a new session begins there, without the message that closed the last")

        self._soon("the bridge gives a message up", give_up)

    def _give_up(self, released: tuple[int, ...]) -> None:
        """Count and log messages whose PUBREL closes the connection."""
        for identifier in released:
            self._suspects.forget_guilty(Release(identifier))
            if identifier in self._released:  # already set aside, with its reason
                self._released.discard(identifier)
                continue
            self._unconfirmed += 1
            if self._engine.broker.log_throttle.allows(f"bridge {self.section.name} gives up"):
                log.warning(
                    "bridge %s: the other broker closes the connection at the PUBREL of a message,"
                    " %d times (packet identifier %d). The message may have arrived; it is not sent"
                    " again; later messages are sent",
                    self.section.name,
                    TIMES,
                    identifier,
                )

    def _pair(self) -> Pair:
        """Return the pair of sessions. If our session no longer exists, a new word is drawn, so
        that the session at the other broker is not used again.
        """
        held = self._pairing.read()
        if held is None or self._session is None:
            return self._pairing.draw()
        return self._pairing.identify(held)

    @property
    def _full_name(self) -> str:
        """The name of the bridge for users of other gateways."""
        return f"{self._engine.broker.config.gateway.name}/{self.section.name}"

    def _mark(self, pair: Pair) -> str:
        """Return the mark of the messages that cross this bridge."""
        return f"{self._full_name}/{pair.mark}"

    def _name_there(self, pair: Pair) -> str:
        return f"{self._engine.broker.config.gateway.name}-{self.section.name}-{pair.word}"

    def _hello(self, theirs: Properties) -> Properties:
        """Return properties of our CONNECT within the limits of the other broker."""
        if (most := theirs.get(PropertyId.MAXIMUM_QOS, 2)) < min(self.section.qos, self._most_qos):
            log.warning(
                "bridge %s: the other broker takes no QoS %d. Messages go there at QoS %d, and may"
                " arrive twice after an outage",
                self.section.name,
                self.section.qos,
                most,
            )
        self._most_qos = most
        self._in_flight = theirs.get(PropertyId.RECEIVE_MAXIMUM, 65_535)
        return {PropertyId.RECEIVE_MAXIMUM: self._in_flight}

    # -- subscriptions

    def _subscribe_packets(self) -> list[Packet]:
        """Return SUBSCRIBE and UNSUBSCRIBE packets for the filters that our session lacks, and for
        those that it should not have.
        """
        section, session = self.section, self._session
        held = {} if session is None else session.subscriptions
        packets: list[Packet] = []
        if gone := sorted(set(held) - set(section.up)):
            packets.append(Unsubscribe(1, gone))
        new = [item for item in section.up if item not in held or held[item].qos != section.qos]
        if new:
            packets.append(Subscribe(2, [_subscription(item, section.qos) for item in new]))
        return packets

    def _requests(self, pair: Pair) -> list[_Request]:
        """Return the requests to the other broker: unsubscribe from filters that are no longer
        wanted, and subscribe to the wanted ones, below the prefix.
        """
        wanted = [self.section.prefix + item for item in self.section.down]
        gone = sorted(set(pair.down) - set(wanted))
        wanted = [item for item in wanted if not self._is_given_up((True, item))]
        gone = [item for item in gone if not self._is_given_up((False, item))]
        self._subscribed = self._pairing.subscribe(pair, (*wanted, *gone))
        self._asked.clear()
        return [*((False, item) for item in gone), *((True, item) for item in wanted)]

    def _is_given_up(self, request: _Request) -> bool:
        """Whether the other broker closes the connection at a request. Such a request is made again
        after the next start.
        """
        if self._suspects.guilty(request):
            self._suspects.forget_guilty(request)
            self._given_up.add(request)
            if request[0]:
                self._lack(request[1], f"it closes the connection at that, {TIMES} times")
        return request in self._given_up

    def _lack(self, item: str, why: str) -> None:
        """Log that there is no subscription to a filter."""
        if self._lacking.get(item) != why:
            log.warning(
                "bridge %s: the other broker refuses the subscription to %s: %s",
                self.section.name,
                item,
                why,
            )
        self._lacking[item] = why

    def _request(self, request: _Request, far: FarConnection) -> Subscribe | Unsubscribe | None:
        """Return the packet of a request, or None if it is too large for the other broker."""
        subscribe, item = request
        identifier = _LAST_IDENTIFIER - len(self._asked)
        packet: Subscribe | Unsubscribe = (
            Subscribe(identifier, [_subscription(item, self.section.qos)])
            if subscribe
            else Unsubscribe(identifier, [item])
        )
        try:
            size = len(far.encoded(packet))
        except Unfit as error:
            if subscribe:
                self._lack(item, str(error))
            return None
        self._asked[identifier] = request
        self._suspects.sent(request, size, asyncio.get_running_loop().time())
        return packet

    def subscribed(self, packet: Suback | Unsuback) -> None:
        """Handle the answer to a request."""
        request = self._asked.pop(packet.packet_id, None)
        if request is None:
            return
        self._suspects.answered(request)
        subscribe, item = request
        if not subscribe:
            self._unsubscribed(item)
            return
        reason = packet.reasons[0]
        if reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._lack(item, reason.name)
        else:
            self._lacking.pop(item, None)

    def _unsubscribed(self, item: str) -> None:
        """Note that the other broker has ended a subscription."""
        if (pair := self._subscribed) is not None:
            down = tuple(other for other in pair.down if other != item)
            with suppress(OncewayError):  # the next connection tries again
                self._subscribed = self._pairing.subscribe(pair, down)

    # -- messages that are set aside

    def put_aside(self, packet: Publish, kind: str, reason: str, *, taken: bool) -> None:
        """Set aside a message that our broker is just sending, as soon as that is done."""
        near = self._near

        def put() -> None:
            self._engine.begin()
            if not packet.qos:
                self.aside.keep(packet, kind, reason)
            elif near is not None and near is self._near:
                self._set_aside(packet.packet_id, kind, reason, taken=taken)

        self._soon("a message was set aside", put)

    def _soon(self, doing: str, call: Callable[[], None]) -> None:
        """Call a function after the current work of our broker. An exception in the call ends this
        bridge's connection to our broker. doing: for the log, as a clause behind "while".
        """

        def serve() -> None:
            connection = None if self._session is None else self._session.connection
            if connection is None:
                call()
            else:
                self._engine.serve(connection, doing, call)

        self._engine.call_later(0, serve)

    def refused(self, identifier: int, reason: ReasonCode) -> None:
        """Set aside a message that the other broker refuses for good."""
        kind = f"the other broker refuses a message for good: {reason.name}"
        self._engine.begin()
        self._refused += self._set_aside(identifier, kind, kind, taken=False)

    def _set_aside(self, identifier: int, kind: str, reason: str, *, taken: bool) -> bool:
        session = self._session
        if session is None:
            return False
        moved = self.aside.move(session, identifier, kind, reason, taken=taken)
        if moved and identifier in session.send_flow.released:
            self._released.add(identifier)
        return moved

    # -- counts

    def expects(self, packet: Puback | Pubrec | Pubcomp) -> bool:
        """Whether a message waits for an acknowledgement. Log it if none does."""
        session, identifier = self._session, packet.packet_id
        if session is not None:
            flow = session.send_flow
            found = flow.in_flight(identifier)
            if found is not None and not isinstance(packet, Pubcomp):
                return (found[0].flags >> 1 & 3 == 1) is isinstance(packet, Puback)
            if identifier in flow.released and not isinstance(packet, Puback):
                return True
        if self._engine.broker.log_throttle.allows(f"bridge {self.section.name} expects no ack"):
            log.warning(
                "bridge %s: the other broker acknowledges a message that is not in flight (%s,"
                " packet identifier %d). That is ignored",
                self.section.name,
                type(packet).__name__.upper(),
                identifier,
            )
        return False

    def finished(self, packet: Ack) -> None:
        """Count a message that the other broker has fully acknowledged."""
        if isinstance(packet, Pubcomp) and packet.packet_id in self._released:
            self._released.discard(packet.packet_id)
        else:
            self._sent += 1

    def count_sent(self) -> None:
        """Count a message at QoS 0 that was sent."""
        self._sent += 1

    def count_dropped(self) -> None:
        """Count a message at QoS 0 that was dropped."""
        self._dropped += 1

    def count_received(self) -> None:
        """Count a message from the other broker."""
        self._received += 1

    def not_taken(self, topic: str, why: str) -> None:
        """Count and log a message from the other broker that our broker can never accept."""
        self._not_taken += 1
        name = self.section.name
        if self._engine.broker.log_throttle.allows(f"bridge {name} cannot take a message"):
            log.warning(
                "bridge %s: a message from the other broker cannot be taken here and is refused,"
                " and later ones are taken, topic %s: %s",
                name,
                quote(topic),
                why,
            )

    def came_back(self, packet: Publish, other: str) -> None:
        """Count and log a message that has already crossed this bridge. other: the last bridge that
        it crossed.
        """
        self._looped += 1
        if other not in self._loops and len(self._loops) < _MOST_LOOPS:
            self._loops.add(other)
            log.warning(
                "bridge %s: a message that had crossed this bridge came back by way of %s, topic"
                " %s. It does not cross again, and neither does any other that comes back. Give"
                " the bridges topics that do not meet: up, down and prefix of [[bridge]]",
                self._full_name,
                other,
                quote(packet.topic),
            )

    def take_out(self, packet: Publish) -> None:
        """Remove a message that does not cross from our broker's queue, as soon as it is sent."""
        near = self._near

        def forget() -> None:
            session = self._session
            if near is not self._near or session is None or session.connection is None:
                return
            self._engine.begin()
            with self._engine.broker.step:
                take_out(session, packet.packet_id, packet.qos, taken=packet.dup)
            if packet.packet_id in session.send_flow.released:
                self._released.add(packet.packet_id)

        if packet.qos:
            self._soon("a message that does not cross is taken out of the queue", forget)

    def is_for_now(self, packet: Publish) -> bool:
        """Whether our broker's refusal of a message is temporary."""
        broker, session = self._engine.broker, self._session
        if session is None:
            return True
        with broker.step:
            run = PublishRun(
                broker.router.known(encode_string(packet.topic), packet.topic),
                packet.payload,
                packet.qos,
                packet.retain,
                ids=(packet.packet_id,),
                properties=pass_through(packet.properties or {}),
                publisher=session,
            )
            lack = lacks(broker, run, session.durable)
            return lack is None or explained(broker, run, lack).passes

    def waits(self, topic: str) -> None:
        """Log that a message of the other broker waits, because our broker refuses it for now."""
        name = self.section.name
        if self._engine.broker.log_throttle.allows(f"bridge {name} holds a message"):
            log.warning(
                "bridge %s: this gateway has no room for a message from the other broker, topic %s."
                " The other broker keeps it, and it is tried again every 1 to 30 s",
                name,
                quote(topic),
            )


def _subscription(topic_filter: str, qos: int) -> Subscription:
    """Return a subscription that sends nothing back to its publisher [MQTT-3.8.3-3]."""
    return Subscription(topic_filter, qos, True, True, _ONLY_NEW)


class Bridges:
    """All bridges of a configuration."""

    def __init__(self, engine: Engine, sections: list[BridgeSection]) -> None:
        self._engine = engine
        self._bridges = [Bridge(engine, section) for section in sections]

    async def start(self) -> None:
        """End the sessions of removed bridges, and start all configured ones."""
        wanted = {bridge.section.client for bridge in self._bridges}
        for client in list(self._engine.broker.sessions):
            if client.startswith(BRIDGE) and client not in wanted:
                await self._engine.end_session(client)
        names = frozenset(bridge.section.name for bridge in self._bridges)
        self._forget_aside(names)
        with suppress(OSError):
            forget(self._engine.broker.config.gateway.data, names)
        for bridge in self._bridges:
            await bridge.start()

    def _forget_aside(self, names: frozenset[str]) -> None:
        """Delete the messages that removed bridges have set aside."""
        self._engine.begin()
        aside = self._engine.broker.aside
        for name in set(aside.bridges) - names:
            numbers = aside.numbers(name)
            with self._engine.broker.step:
                for number in numbers:
                    aside.forget(name, number)
            log.warning(
                "bridge %s is gone from the configuration, and with it %d messages that were set"
                " aside",
                name,
                len(numbers),
            )

    async def close(self) -> None:
        for bridge in self._bridges:
            await bridge.close()

    @property
    def status(self) -> list[BridgeStatus]:
        return [bridge.status for bridge in self._bridges]

    # -- messages that are set aside

    async def discard(self, name: str, numbers: list[int]) -> int:
        """Delete messages that a bridge has set aside, and wait until that is on disk. Return how
        many. numbers: empty for all.
        """
        done = self._named(name).aside.discard(numbers)
        await self._engine.kept()
        return done

    async def again(self, name: str, numbers: list[int]) -> int:
        """Put messages that a bridge has set aside back into its queue. Parameters: as for
        `discard`.
        """
        bridge = self._named(name)
        await self._engine.kept()  # payloads are read from the disk
        session = self._engine.broker.sessions.get(bridge.section.client)
        if session is None:
            raise OncewayError("the bridge has no session now", f"bridge {name}", "Try again")
        try:
            return await bridge.aside.again(session, numbers)
        finally:
            await self._engine.kept()

    def _named(self, name: str) -> Bridge:
        for bridge in self._bridges:
            if bridge.section.name == name:
                return bridge
        raise OncewayError("there is no such bridge", name, "See: onceway gateway status")
