"""A bridge: a session of this broker whose client is another broker.

In: a `[[bridge]]` section. Out: a session with a queue on disk, from the start on, and a connection
to the other broker whenever the other broker is reachable. One commit adds a publication to the
queue and to the spool. Acknowledgements of the other broker go to the session.

So after a power cut of this gateway the session continues where it was: it sends PUBREL for each
message whose PUBREC has arrived, and PUBLISH with DUP and the same packet identifier for each other
message in flight. A message that can never reach the other broker moves from the queue to the
messages that are set aside (`aside.py`).
"""

from __future__ import annotations

import asyncio
import logging

from gateway.bridge.converge import Convergence, Link
from gateway.bridge.counts import Counts
from gateway.bridge.exchange import Exchange, Parts
from gateway.bridge.far import KEPT_S, FarConnection
from gateway.bridge.far_filters import FarFilters, Request, subscription
from gateway.bridge.near import NearClient
from gateway.bridge.own_queue import OwnQueue
from gateway.bridge.pairing import Pair, Pairing
from gateway.bridge.pauses import Pauses
from gateway.bridge.reasons import SAYS
from gateway.bridge.status import SAMPLE_S, BridgeStatus, QueueAge
from gateway.bridge.suspects import ANSWER_S, HOLD_S, Release, Suspects
from gateway.config import BridgeSection
from gateway.errors import OncewayError
from gateway.mqtt.packets import (
    Connack,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from gateway.mqtt.properties import Properties, PropertyId
from gateway.runtime.administration import forget_received
from gateway.runtime.engine import Engine

log = logging.getLogger(__name__)

_MOST_FAILED = 16
"""Largest number of addresses that are remembered as failed."""
_SHORT_S = 3600
"""Shortest Session Expiry Interval of the other broker, in seconds, that causes no warning."""


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
        self.retained = Convergence(engine, section)
        self._age = QueueAge()
        self._sampler: asyncio.TimerHandle | None = None
        self._most_qos = 2
        """Maximum QoS of the other broker."""
        self._down_since: float | None = None
        self._failed: list[str] = []
        """Addresses that accepted TCP, but then did not let the bridge connect; the latest last."""
        core, name = engine.broker, section.name
        self._counts = Counts(core.config.gateway.name, name, core.log_throttle)
        self._pauses, self._suspects = Pauses(), Suspects()
        self._filters = FarFilters(section, self._pairing, self._suspects)
        self._queue = OwnQueue(engine, section, self._pairing, self._suspects, self._counts)
        self.aside = self._queue.aside
        self._parts = Parts(
            section, self._queue, self._counts, self._filters, self._pauses, self._suspects
        )
        self._exchange: Exchange | None = None
        self._established = False
        """Whether the exchange of messages has begun on the latest connection."""

    async def start(self) -> None:
        """Create the session in which messages wait from now on, and begin to connect."""
        await self._ensure()
        self._sample()
        self._task = asyncio.create_task(self._run())

    def _sample(self) -> None:
        """Sample the numbers of the oldest and the newest waiting message, now and every SAMPLE_S
        seconds. The samples show how old the oldest message is.
        """
        loop = asyncio.get_running_loop()
        self._sampler = loop.call_later(SAMPLE_S, self._sample)
        if (session := self._queue.session) is not None:
            flow = session.send_flow
            self._age.sample(loop.time(), flow.next - flow.messages, flow.next)

    async def _ensure(self) -> None:
        """Create the session at this gateway's broker, and its subscriptions, whether or not the
        other broker is reachable.
        """
        try:
            if self._queue.session is None:
                self._pairing.draw()
            if packets := self._subscription_changes():
                await self._say(packets)
        except OncewayError as error:
            self._fail(str(error))
        except Exception as error:
            self._blame(error)

    async def _say(self, packets: list[Packet]) -> None:
        """Connect to the broker of this gateway, send it packets, and wait for the answers."""
        answers = 1 + len(packets)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def count(found: list[Packet]) -> None:
            nonlocal answers
            answers -= sum(not isinstance(packet, Publish) for packet in found)
            if answers <= 0 and not done.done():
                done.set_result(None)

        def ended() -> None:
            if not done.done():
                done.set_exception(OncewayError("this gateway does not accept the session"))

        near = NearClient(self._engine, self.section, None, {PropertyId.RECEIVE_MAXIMUM: 1})
        near.on_packets, near.ended = count, ended
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
        session = self._queue.session
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
            self._counts.sent,
            self._counts.refused,
            self._counts.dropped + (flow.overflowed if flow else 0),
            self._counts.received,
            self.aside.set_aside,
            self.aside.lost,
            *self.aside.kept,
            tuple(self._filters.lacking),
            unconfirmed=self._counts.unconfirmed,
            not_taken=self._counts.not_taken,
            held=len(self._exchange.refused_for_now) if self._exchange is not None else 0,
            looped=self._counts.looped,
            retained=self.retained.state,
            differ=self.retained.differ,
            agreed=len(self.retained.agreement),
            retained_here=self.retained.retained_here,
            retained_there=self.retained.retained_there,
            oldest_s=age,
            last_error=self._last_error,
        )

    # -- connections, one after the other

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began, self._established = loop.time(), False
            try:
                await self._connect()
            except OncewayError as error:
                self._fail(str(error))
            except Exception as error:
                self._blame(error)
                self._pauses.note_reason()
            if self._queue.session is None:  # an administrator may have ended it
                await self._ensure()
            on_trial = self._established and self._suspects.tries_suspects
            suspects = self._suspects.in_a_row if on_trial else None
            await asyncio.sleep(self._pauses.next(loop.time() - began, suspects))

    def _blame(self, error: Exception) -> None:
        log.error("bridge %s: internal error", self.section.name, exc_info=error)
        self._fail(f"internal error ({error})")

    def _fail(self, error: str) -> None:
        self._connected = False
        plain, before = error.partition(SAYS)[0], self._error.partition(SAYS)[0]
        if (plain != before or self._down_since is None) and self._may_log(plain):
            log.warning(
                "bridge %s: %s. Messages wait. The bridge tries again until it has connected",
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

    def _may_log(self, line: str) -> bool:
        """Whether the log throttle allows a line. If the connection breaks again and again, the
        same line is logged only once per burst.
        """
        return self._engine.broker.log_throttle.allows(f"bridge {self.section.name} {line}")

    async def _connect(self) -> None:
        """Connect, and serve until the connection ends. Always raises OncewayError with the
        reason.
        """
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

        self._queue.start_over = start_over
        pair = self._pair()
        packet_bytes = self._engine.broker.limits.packet_bytes
        exchange = self._exchange = Exchange(self._parts, loop.time, end)
        far = FarConnection(exchange.from_far, end, exchange.drained, packet_bytes)
        try:
            answer = await self._open(far, pair)
            if pair.joined is not answer.session_present:
                self._pairing.draw()
                far.close(forget=True)
                raise OncewayError(
                    "the other broker has forgotten the session: messages in flight may arrive"
                    " twice, and messages that waited there for this gateway are lost"
                    if pair.joined
                    else "the other broker has a session that the bridge did not begin; the bridge"
                    " begins a new one"  # [MQTT-3.2.2-4]
                )
            if not pair.joined:
                await forget_received(self._engine, self.section.client)
                pair = self._pairing.join(pair)
            hello = self._hello(answer.properties or {})
            requests = self._filters.requests(pair)
            if self._has_suspects(requests):
                await self._try_without_messages(far, requests, ended)
                requests = []
                if self._suspects.tries_suspects:
                    hello[PropertyId.RECEIVE_MAXIMUM] = 1
            crossings = await self.retained.crossings()
            near = self._queue.near = NearClient(self._engine, self.section, far, hello)
            self._established = True
            exchange.begin(far, answer, near, self._mark(pair), crossings)
            near.take(self._subscription_changes())
            for request in requests:
                if (packet := self._filters.request(request, far)) is not None:
                    far.send(packet)
            self._succeed()
            if not (answer.properties or {}).get(PropertyId.RETAIN_AVAILABLE, 1):
                self.retained.unavailable()
            else:
                name, known = self._name_there(pair), answer.session_present
                mark, tries, lost = self._mark(pair), self._tries_any, self._lost
                self.retained.begin(Link(far, near, crossings, mark, name, known, tries, lost))
            raise OncewayError((await ended)[0])
        finally:
            self._suspects.ended(ended.done() and ended.result()[1], loop.time())
            if far.gave_reason:
                self._pauses.note_reason()
            self._queue.near = self._exchange = None
            self.retained.end()
            exchange.end()
            far.close(forget=anew)

    async def _open(self, far: FarConnection, pair: Pair) -> Connack:
        """Connect to the other broker and return its CONNACK. The addresses that accepted TCP in
        the last attempts, but then failed, are tried last.
        """
        failed, self._failed = self._failed, []
        try:
            return await far.open(self.section, self._name_there(pair), last=failed)
        except OncewayError:
            others = (item for item in failed if item != far.address)
            self._failed = [*others, *filter(None, [far.address])][-_MOST_FAILED:]
            raise

    # -- suspects (`gateway/bridge/suspects.py`)

    def _has_suspects(self, requests: list[Request]) -> bool:
        """Forget the suspects that will not be sent again. Return whether suspects remain: then
        each suspect is sent alone. requests: the SUBSCRIBE and UNSUBSCRIBE to send.
        """
        session = self._queue.session
        again = session.send_flow.flights.to_resend if session is not None else set()
        released = session.send_flow.flights.released if session is not None else {}
        self._suspects.keep([*again, *map(Release, released), *requests])
        return self._suspects.tries_suspects

    def _tries_any(self) -> bool:
        return self._suspects.tries_suspects

    def _lost(self) -> int:
        """Return how many messages were lost, refused or set aside since the start, in both
        directions.
        """
        session = self._queue.session
        full = 0 if session is None else session.send_flow.overflowed
        return full + self._counts.dropped + self._counts.not_taken + self.aside.set_aside

    async def _try_without_messages(
        self, far: FarConnection, requests: list[Request], ended: asyncio.Future[tuple[str, bool]]
    ) -> None:
        """Make the requests one after the other. Then check that the connection stays open for
        HOLD_S seconds while the bridge sends no messages. Raises OncewayError if the connection
        ends.
        """
        for request in requests:
            if (packet := self._filters.request(request, far)) is not None:
                answer = await far.ask(packet, ANSWER_S)
                if isinstance(answer, Suback | Unsuback):
                    self._filters.subscribed(answer)
        await asyncio.wait([ended], timeout=HOLD_S)
        await far.ask(Pingreq(), ANSWER_S)
        if ended.done():
            raise OncewayError(ended.result()[0])

    def _pair(self) -> Pair:
        """Return the pair of sessions. If the session at this gateway no longer exists, return a
        new pair, so that the session at the other broker is not used again.
        """
        pair = self._pairing.read()
        if pair is None or self._queue.session is None:
            return self._pairing.draw()
        return self._pairing.identify(pair)

    def _mark(self, pair: Pair) -> str:
        """Return the mark that this bridge adds to messages. By the mark, the bridge recognises
        messages that come back in a loop.
        """
        return f"{self._counts.bridge}/{pair.mark}"

    def _name_there(self, pair: Pair) -> str:
        return f"{self._engine.broker.config.gateway.name}-{self.section.name}-{pair.word}"

    def _hello(self, theirs: Properties) -> Properties:
        """Return the properties for the CONNECT to our broker: the Receive Maximum of the other
        broker. Log a warning for each limit of the other broker that is too low for this bridge.
        theirs: the properties of the other broker's CONNACK.
        """
        if (most := theirs.get(PropertyId.MAXIMUM_QOS, 2)) < min(self.section.qos, self._most_qos):
            log.warning(
                "bridge %s: the other broker does not accept QoS %d. Messages are sent to it at"
                " QoS %d, so after an outage they may arrive twice, or at QoS 0 be lost",
                self.section.name,
                self.section.qos,
                most,
            )
        self._most_qos = most
        kept_s = theirs.get(PropertyId.SESSION_EXPIRY_INTERVAL, KEPT_S)
        if kept_s < _SHORT_S and self._may_log("short session"):
            log.warning(
                "bridge %s: the other broker keeps a session for %d s only. After a longer outage,"
                " messages in flight may arrive twice, and messages for this gateway are lost",
                self.section.name,
                kept_s,
            )
        self._queue.in_flight = theirs.get(PropertyId.RECEIVE_MAXIMUM, 65_535)
        return {PropertyId.RECEIVE_MAXIMUM: self._queue.in_flight}

    # -- subscriptions

    def _subscription_changes(self) -> list[Packet]:
        """Return a SUBSCRIBE for the filters of `up` that our session lacks or has with another
        QoS, and an UNSUBSCRIBE for the session's filters that are not in `up`. Leave out a packet
        without filters.
        """
        section, session = self.section, self._queue.session
        subscribed = {} if session is None else session.subscriptions
        packets: list[Packet] = []
        if unwanted := sorted(set(subscribed) - set(section.up)):
            packets.append(Unsubscribe(1, unwanted))
        new = [
            item
            for item in section.up
            if item not in subscribed or subscribed[item].qos != section.qos
        ]
        if new:
            packets.append(Subscribe(2, [subscription(item, section.qos) for item in new]))
        return packets
