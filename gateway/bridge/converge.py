"""The work that makes the retained messages at both brokers of a bridge equal.

In: our retained messages, and the other broker's retained messages, read after each connect. Out:
messages in either direction until both brokers have the same messages, by the rules of
`agreement.py`. Equal messages are not sent.

The comparison begins when nothing waits any more in either direction: the queue here is empty, and
a round trip of PINGREQ brings no message. So a message that was on its way is not sent again. On a
busy connection, the comparison begins when all messages that waited at first were sent. A topic
that changes during the comparison is not compared, because the bridge forwards its change anyway.

On a long connection the comparison is repeated: after the loss of a message, and otherwise rarely.
Topics that may differ because messages passed each other (`collisions.py`) are compared alone,
seconds later.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from gateway.bridge.agreed import AgreedFile
from gateway.bridge.agreement import Agreement, Digest, Step, digest, digest_of
from gateway.bridge.collisions import Collisions
from gateway.bridge.comparison import Comparison, Difference
from gateway.bridge.comparison_pauses import ComparisonPauses
from gateway.bridge.crossings import Crossings
from gateway.bridge.far import FarConnection
from gateway.bridge.near import NearClient
from gateway.bridge.own_topics import OwnTopics
from gateway.bridge.survey import Survey
from gateway.bridge.translate import Translator, Unfit, decoded, without, without_marks
from gateway.broker.core import Core
from gateway.broker.fan_out import deliver, explained, lacks
from gateway.broker.fan_out import publish as fan_out
from gateway.broker.publish_run import PublishRun
from gateway.broker.queue_limits import is_full
from gateway.broker.retained import Retained
from gateway.config import BridgeSection
from gateway.errors import OncewayError
from gateway.mqtt.packets import Publish
from gateway.mqtt.properties import PropertyId, pass_through
from gateway.mqtt.runs import RETAIN
from gateway.runtime.engine import Engine
from gateway.store import views

log = logging.getLogger(__name__)

RETRY_S = 60.0
"""Seconds until the next comparison if one has failed, or if topics that the bridge can forward
still differ after it.
"""
AGAIN_S = 600.0
"""Shortest time, in seconds, until the next comparison on the same connection if RETRY_S does not
apply.
"""
BYTES_PER_S = 10
"""Largest average rate, in bytes per second, at which repeated comparisons read messages."""
BUSY_S = 30.0
"""Seconds for which a comparison waits until no message is on its way. After that, it waits only
for the messages that are then in the queue.
"""
PER_BATCH = 10
BATCH_S = 0.1
"""At most PER_BATCH retained messages are sent in BATCH_S seconds."""
_MOST_WAITING = 100
"""Retained messages are sent only while at most this many messages wait for the other broker."""
_SETTLED_S = 1.5, 2.5
"""Shortest and longest time, in seconds, that a connection must last before the comparison. The
time is random, so that two gateways with bridges to each other do not compare at the same time.
"""
_NOTHING_HERE_S = 4.0
"""Additional seconds before the comparison if this gateway has no retained message that the bridge
forwards, and no agreement. Then the comparison can only bring messages to this gateway.
"""
_SOON_S = 0.2
"""Seconds between a change that both brokers have and the mark (`agreement.py`) that covers it."""
_MARKS = 20
_MARK_S = 30.0
"""`_MARKS` marks may be sent in a row, and one more after each `_MARK_S` seconds."""
_MARK_TOPIC = "$onceway/bridge/"


@dataclass(slots=True)
class Link:
    """One connection of the bridge. mark: the mark that this bridge adds to messages. client:
    client identifier at the other broker. present: whether the other broker still had our session.
    tries_suspects: returns whether suspects have to be sent alone now (`suspects.py`). lost:
    returns the number of messages that were lost or refused since the start.
    """

    far: FarConnection
    near: NearClient
    crossings: Crossings
    mark: str
    client: str
    present: bool
    tries_suspects: Callable[[], bool]
    lost: Callable[[], int]


class Convergence:
    """Compares the retained messages of both brokers of a bridge on each connection, and makes them
    equal.
    """

    def __init__(self, engine: Engine, section: BridgeSection) -> None:
        self._engine = engine
        self._section = section
        own = OwnTopics(engine.broker.config)
        self._file = AgreedFile(engine.broker.config.gateway.data, section.name, own.has)
        self.agreement = Agreement(0, {}, 0)
        self._read = False
        """Whether the file of agreements was read, or cleared because the key `retained` is false.
        """
        self._differ: int | None = None
        """Number of topics that still differ after the last comparison; None if unknown."""
        self._stuck = 0
        """Number of topics that the last comparison could not make equal (`Difference.stuck`)."""
        self.retained_here = self.retained_there = 0
        """After the last comparison, for each broker: number of retained messages that match a
        filter of the bridge."""
        self.error = ""
        """Reason why the comparison is not complete; empty if the comparison is complete."""
        self.proves = True
        """Whether the other broker keeps the mark (`agreement.py`), without which no deletion can
        be proven.
        """
        self.refused: dict[str, Digest] = {}
        self._comparison = Comparison(engine.broker, section, self.refused, own)
        self._collisions: Collisions | None = None
        """Topics that may differ because messages passed each other on this connection; None while
        the bridge is not connected.
        """
        self._crossing = False
        """Whether the messages by which a comparison makes both brokers equal are on their way."""
        self._careful = False
        """Whether every message is sent at QoS 1 or 2. This is so if the connection ended during
        the last comparison. Only at QoS 1 or 2 can the bridge find out at which message the other
        broker ends a connection.
        """
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._marks = float(_MARKS)
        self._marked_at = 0.0
        self._pauses = ComparisonPauses()

    @property
    def state(self) -> str:
        """The state of the comparison: one of `status.STATES`, or the text of an error."""
        if not self._section.retained:
            return "off"
        if self.error:
            return self.error
        if self._differ is None:
            return "waiting"
        if self._crossing or self.differ is None:
            return "comparing"
        return "differ" if self.differ else "equal"

    @property
    def differ(self) -> int | None:
        """Number of topics that differ, None if unknown."""
        in_doubt = self._collisions is not None and self._collisions.topics
        return None if in_doubt else self._differ

    async def crossings(self) -> Crossings:
        """Return a `Crossings` for a new connection. The first call reads the agreements from the
        disk.
        """
        if not self._read:
            if self._section.retained:
                most = self._engine.broker.limits.retained
                self.agreement = Agreement(most, *await self._file.read())
                await self._remember_refused()
            else:
                await self._file.clear()
            self._read = True
        if not self._section.retained:
            return Crossings(lambda topic, state: None, lambda topics, sent: None, self.refused)
        self._collisions = Collisions(asyncio.get_running_loop().time, self._changed.set)
        return Crossings(self._note, self._doubt, self.refused, self._collisions)

    async def _remember_refused(self) -> None:
        """Note in `refused` the retained messages that are set aside. The other broker can never
        accept them.
        """
        data = self._engine.broker.config.gateway.data
        for row in await asyncio.to_thread(views.aside, data, self._section.name):
            if row.retain:
                properties = decoded(row.properties) if row.properties else None
                self.refused[row.topic] = digest(row.payload, properties)

    def _note(self, topic: str, state: Digest) -> None:
        self.agreement.note(topic, state)
        self._changed.set()

    def _doubt(self, topics: Iterable[str], sent: bool) -> Awaitable[object] | None:
        """Note that retained messages of these topics are about to be forwarded. sent: whether they
        go to the other broker. Return None if nothing has to be written to the disk, else a future
        that ends after the write.
        """
        topics = list(topics)
        found = self.agreement.doubt(topics, sent=sent)
        if topics:
            self._changed.set()
        if not found:
            return None

        def doubted(done: asyncio.Future[bool]) -> None:
            if not done.cancelled() and not done.result():
                self.agreement.void()  # the file has no agreements either

        done = self._file.doubt(found, sent=sent)
        done.add_done_callback(doubted)
        return done

    def begin(self, link: Link) -> None:
        """Begin to compare both brokers and to keep the mark up to date, until `end` is called."""
        if self._section.retained:
            self._task = asyncio.create_task(self._run(link))

    def unavailable(self) -> None:
        """Note that the other broker keeps no retained messages."""
        if self._section.retained:
            self.error = (
                "the other broker keeps no retained messages: set retained = false in [[bridge]]"
            )

    def end(self) -> None:
        self._careful = self._crossing
        self._differ, self._crossing, self._collisions = None, False, None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        self._file.close()

    async def _run(self, link: Link) -> None:
        await asyncio.sleep(random.uniform(*_SETTLED_S))  # noqa: S311 - jitter, no secret
        if not self.agreement.topics() and next(self._comparison.ours(), None) is None:
            await asyncio.sleep(_NOTHING_HERE_S)
        remaining = self._pauses.left_s(asyncio.get_running_loop().time())
        if remaining and await self._knows_us(link):
            await self._keep_marks(link, remaining)
        while True:
            try:
                size = await self._compare(link)
                self.error = ""
                if not self._differ or self._differ == self._stuck:
                    await self._keep_marks(link, max(AGAIN_S, size / BYTES_PER_S))
                    self._pauses.forgive()
                    continue
            except (OncewayError, Unfit) as error:
                self._fail(str(error))
            except Exception as error:
                log.exception("bridge %s: internal error", self._section.name)
                self._fail(f"internal error ({error})")
            await asyncio.sleep(RETRY_S)

    async def _knows_us(self, link: Link) -> bool:
        """Whether the mark shows that the other broker has lost no message that both brokers had.
        Only the mark is read. False if it cannot be read.
        """
        survey = Survey(self._section, self._engine.broker.limits)
        try:
            number = await self._read_mark(link, survey)
        except OncewayError:
            return False
        finally:
            survey.end()
        return link.present and self.agreement.knows(number)

    async def _read_mark(self, link: Link, survey: Survey) -> int | None:
        """Connect `survey` to the other broker, and return the number in the bridge's mark there.
        None if the other broker has no valid mark.
        """
        await survey.begin(f"{link.client}-r", link.far.address)
        await survey.read([_mark_topic(link)])
        return _number(survey.found.pop(_mark_topic(link), None))

    async def _keep_marks(self, link: Link, seconds: float) -> None:
        """For at most `seconds`, write marks for new changes, and compare topics that may differ.
        Return early if a message was lost.
        """
        loop, collisions = asyncio.get_running_loop(), link.crossings.collisions
        until, lost = loop.time() + seconds, link.lost()
        while loop.time() < until:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(RETRY_S, seconds, collisions.left_s)):
                    await self._changed.wait()
            if self._changed.is_set():
                await asyncio.sleep(_SOON_S)
                await self._keep_mark(link)
            elif link.lost() != lost:
                return
            if not collisions.left_s:
                await self._compare_doubted(link)
            now = loop.time()
            if collisions.forgets and await self._is_silent(link):
                collisions.forget(now)

    def _fail(self, error: str) -> None:
        if error != self.error:
            log.warning(
                "bridge %s: the retained messages of both brokers cannot be compared: %s. Trying"
                " again every %.0f s",
                self._section.name,
                error.rstrip("."),
                RETRY_S,
            )
        self.error = error

    # -- one comparison

    async def _compare(self, link: Link) -> int:
        """Compare both brokers, and transfer the differing messages. Return the number of bytes
        read.
        """
        agreement = self.agreement
        before = await self._quiet(link)
        survey = Survey(self._section, self._engine.broker.limits)
        steps: dict[str, Step] = {}
        try:
            number = await self._read_mark(link, survey)
            await survey.read(self._comparison.filters)
            known = link.present and agreement.knows(number)
            prefix = self._section.prefix
            if known:
                wanted = (prefix + topic for topic in agreement.topics())
                await survey.read_names(topic for topic in wanted if topic not in survey.found)
            elif agreement.topics():
                await self._file.clear()  # before a message crosses or a higher mark is written
                agreement.void()
            found = await self._difference(link, survey, before, known)
            self.retained_here, self.retained_there = len(before), found.retained_there
            self._stuck, steps = found.stuck, found.steps
            inbound = (prefix + topic for topic, do in steps.items() if do is Step.TAKE)
            await survey.read_names(inbound, self._section.qos)
            await self._make_equal(link, survey, before, steps)
            self._careful = False
            await self._first_mark(link, survey, number or 0)
        finally:
            survey.end()
            now = asyncio.get_running_loop().time()
            self._pauses.ended(now, survey.size, differed=bool(steps))
        return survey.size

    async def _compare_doubted(self, link: Link) -> None:
        """Compare the topics that may differ, and transfer the differing messages."""
        before = await self._quiet(link)
        topics, collisions = link.crossings.doubted, link.crossings.collisions
        survey = Survey(self._section, self._engine.broker.limits)
        try:
            await survey.begin(f"{link.client}-r", link.far.address)
            names = (self._section.prefix + topic for topic in topics)
            await survey.read_names(names, self._section.qos)
            found = await self._difference(link, survey, before, True, topics)
            await self._make_equal(link, survey, before, found.steps)
        finally:
            survey.end()
            collisions.ended(survey.size)
        if self._differ != self._stuck:
            collisions.doubt(topics)

    async def _make_equal(
        self, link: Link, survey: Survey, before: dict[str, Retained], steps: dict[str, Step]
    ) -> None:
        """Carry out `steps`, so that both brokers have the same retained messages. Topics that
        could not be made equal still count in `_differ`. before: our retained messages before the
        survey, by topic.
        """
        self._differ, self._crossing = len(steps) + self._stuck, True
        sent = [topic for topic, do in steps.items() if do is Step.SEND]
        await self._cross(link, survey, steps)
        await self._settle(link)
        if self._differ == self._stuck:
            prefix = self._section.prefix
            self.retained_here = len({message.topic for message in self._comparison.ours()})
            self.retained_there += sum(topic in before for topic in sent)
            self.retained_there -= sum(prefix + topic in survey.found for topic in sent)
        self._crossing = False

    async def _quiet(self, link: Link) -> dict[str, Retained]:
        """Wait until no message is on its way in either direction. On a busy connection, wait only
        for the messages that are queued now. Return our retained messages by topic.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(BUSY_S):
                while True:
                    if await self._is_silent(link):
                        return self._snapshot(link)
                    await asyncio.sleep(BATCH_S)
        before, (_, last) = self._snapshot(link), self._queue()
        try:
            async with asyncio.timeout(RETRY_S):
                await _until(lambda: self._queue()[0] >= last and not link.tries_suspects())
        except TimeoutError:
            raise OncewayError(
                "waiting messages of the bridge were not sent in time, so the brokers cannot be"
                " compared",
                self._section.server,
            ) from None
        await link.far.settled()
        return before

    async def _is_silent(self, link: Link) -> bool:
        crossings, messages = link.crossings, link.crossings.messages
        broker, section = self._engine.broker, self._section
        if crossings.open or _waiting(broker, section) or link.tries_suspects():
            return False
        await link.far.settled()
        return not (crossings.messages - messages or crossings.open or _waiting(broker, section))

    def _snapshot(self, link: Link) -> dict[str, Retained]:
        link.crossings.begin_reading()
        return {found.topic: found for found in self._comparison.ours()}

    def _queue(self) -> tuple[int, int]:
        """Return the number of the oldest waiting message, and the number after the newest one; (0,
        0) without a session.
        """
        session = self._engine.broker.sessions.get(self._section.client)
        flow = None if session is None else session.send_flow
        return (0, 0) if flow is None else (flow.next - flow.messages, flow.next)

    async def _difference(
        self,
        link: Link,
        survey: Survey,
        before: dict[str, Retained],
        known: bool,
        only: Collection[str] | None = None,
    ) -> Difference:
        """Return the differences, and note topics that are equal at both brokers. Parameters: as
        for `Comparison.difference`.
        """
        await link.far.settled()
        agreement, crossings = self.agreement, link.crossings
        found = await self._comparison.difference(
            agreement, survey, before, crossings.arrived, known=known, mark=link.mark, only=only
        )
        equal, retained = found.equal, self._engine.broker.retained
        fresh = [topic for topic, state in equal.items() if agreement.differs(topic, state)]
        if (disk := self._doubt(fresh, True)) is not None:
            await disk
        for topic in {*fresh, *equal.keys() & crossings.doubted}:
            if retained.get(topic) is before.get(topic) and topic not in crossings.arrived:
                agreement.note(topic, equal[topic])
                crossings.collisions.was_read(topic, equal[topic])
        return found

    # -- messages that cross

    async def _cross(self, link: Link, survey: Survey, steps: dict[str, Step]) -> None:
        """Forward the differing messages in both directions, a bounded number per second."""
        broker, retained = self._engine.broker, self._engine.broker.retained
        seen = {topic: retained.get(topic) for topic in steps}
        failed, rest = 0, list(steps)
        while rest:
            batch, rest = rest[:PER_BATCH], rest[PER_BATCH:]
            await _until(lambda: _waiting(broker, self._section) <= _MOST_WAITING)
            inbound = [topic for topic in batch if steps[topic] is Step.TAKE]
            if (disk := self._doubt(inbound, False)) is not None:
                await disk
            for topic in batch:
                if retained.get(topic) is not seen[topic] or topic in link.crossings.arrived:
                    continue  # the message has changed since, and crosses by itself
                if steps[topic] is Step.SEND:
                    link.crossings.collisions.was_read(topic, digest_of(seen[topic]))
                    failed += not self._send(link, topic, seen[topic])
                else:
                    packet = survey.found.get(self._section.prefix + topic)
                    failed += not await self._take(link, topic, packet)
            self._differ = len(rest) + failed + self._stuck
            await asyncio.sleep(BATCH_S if rest else 0)
        _, last = self._queue()
        await _until(lambda: self._queue()[0] >= last)

    def _send(self, link: Link, topic: str, message: Retained | None) -> bool:
        """Queue our retained message, or its deletion, for the other broker. Return False if there
        is no room, or if the bridge is not connected.
        """
        broker = self._engine.broker
        self._engine.begin()
        session = broker.sessions.get(self._section.client)
        if session is None or session.connection is None:
            return False
        qos, mark = self._section.qos, None if topic in link.crossings.doubted else link.mark
        if message is not None:
            qos = min(qos, message.qos)
        if self._careful:
            qos = max(1, qos)
        run = PublishRun(
            broker.router.topic(topic),
            b"" if message is None else message.payload,
            qos,
            True,
            properties=b"" if message is None else without_marks(message.properties, mark),
            expires=None if message is None else message.expires,
        )
        if is_full(broker, session, run, 1):
            return False
        with broker.step:
            flags = qos << 1 | RETAIN
            deliver(broker, session, run, flags, b"", 0, 1, broker.promise() if qos else 0)
        return True

    async def _take(self, link: Link, topic: str, theirs: Publish | None) -> bool:
        """Publish the other broker's retained message, or its deletion, at this gateway. Return
        False if it must be published later, because this gateway refuses it for now or the session
        has ended.
        """
        engine, broker = self._engine, self._engine.broker
        packet: Publish | None = Publish(topic, b"", retain=True)
        if theirs is not None:
            if topic in link.crossings.doubted:
                theirs = replace(theirs, properties=without(theirs.properties or {}))
            packet = Translator(self._section.prefix, True, link.mark).to_near(theirs)
        session = broker.sessions.get(self._section.client)
        if packet is None or session is None:
            return False
        properties = packet.properties or {}
        state = digest(packet.payload, properties)
        link.crossings.collisions.was_read(topic, state)
        expiry = properties.get(PropertyId.MESSAGE_EXPIRY_INTERVAL)
        engine.begin()
        with broker.step:
            run = PublishRun(
                broker.router.topic(topic),
                packet.payload,
                packet.qos,
                True,
                properties=pass_through(properties),
                expires=None if expiry is None else broker.now + expiry,
                publisher=session,
            )
            if (lack := lacks(broker, run, session.durable)) is not None:
                stuck = not explained(broker, run, lack).passes
                self._stuck += stuck
                return stuck
            fan_out(broker, run, session.client)
            broker.settle()
        await engine.commits.kept()
        self._note(topic, state)
        return True

    # -- the mark

    async def _first_mark(self, link: Link, survey: Survey, least: int) -> None:
        """If a new mark is needed, write it, and read it back to see whether the other broker keeps
        it. least: number of the mark that the other broker has, 0 if it has none.
        """
        agreement, topic = self.agreement, _mark_topic(link)
        if not agreement.has_fresh and not (agreement.topics() and not agreement.knows(least)):
            self.proves = True
            return
        number = agreement.begin_mark(least)
        written = await survey.write(topic, str(number).encode())
        await survey.read([topic])
        proves = written and _number(survey.found.get(topic)) == number
        if self.proves and not proves:
            log.warning(
                "bridge %s: the other broker does not keep the message %s, so the bridge"
                " does not forward deletions of retained messages that happen during an outage. On"
                " the other broker, let the bridge's user read and write this topic",
                self._section.name,
                topic,
            )
        self.proves = proves
        if proves:
            await self._file.write(agreement.confirm_mark(number), number)

    async def _keep_mark(self, link: Link) -> None:
        """Write a mark if changes need one. On average, there is at most one mark per _MARK_S
        seconds. After a quiet time, up to _MARKS marks follow each other without a wait.
        """
        agreement, loop = self.agreement, asyncio.get_running_loop()
        self._changed.clear()
        await self._settle(link)
        if not agreement.has_fresh or not self.proves:
            return
        self._marks = min(_MARKS, self._marks + (loop.time() - self._marked_at) / _MARK_S)
        self._marked_at = loop.time()
        if self._marks < 1:
            await asyncio.sleep((1 - self._marks) * _MARK_S)
        self._marks -= 1
        number = agreement.begin_mark()
        link.far.send(Publish(_mark_topic(link), str(number).encode(), 0, 0, True))
        await link.far.settled()
        await self._file.write(agreement.confirm_mark(number), number)

    async def _settle(self, link: Link) -> None:
        """Make a round trip to the other broker, and wait for a commit at this gateway. Then both
        brokers have the retained messages at QoS 0 that crossed before. Note as agreed those that
        no newer message has replaced.
        """
        crossings, retained = link.crossings, self._engine.broker.retained
        sent, crossings.sent = crossings.sent, {}
        await link.far.settled()
        received, crossings.received = crossings.received, {}
        await self._engine.commits.kept()
        for topic, state in (sent | received).items():
            is_newer = topic in crossings.sent or topic in crossings.received
            if not is_newer and state == digest_of(retained.get(topic)):
                self.agreement.note(topic, state)


def _waiting(broker: Core, section: BridgeSection) -> int:
    """Return the number of messages that the other broker has not fully acknowledged."""
    session = broker.sessions.get(section.client)
    flow = None if session is None else session.send_flow
    return 0 if flow is None else flow.messages + len(flow.flights.released)


def _mark_topic(link: Link) -> str:
    return _MARK_TOPIC + link.mark


async def _until(done: Callable[[], bool]) -> None:
    while True:
        if done():
            return
        await asyncio.sleep(BATCH_S)


def _number(packet: Publish | None) -> int | None:
    """Return the number in the message of a mark, None if it has no valid number."""
    text = b"" if packet is None else packet.payload
    return int(text) if text.isdigit() and len(text) < 16 else None
