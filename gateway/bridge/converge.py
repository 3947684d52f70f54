"""Brings the retained messages of both brokers of a bridge into agreement.

In: the retained messages here, and those of the other broker after each connect. Out: messages in
either direction until both sides have the same, by the rules of `agreement.py`. Equal messages are
not sent.

The comparison begins when nothing waits any more in either direction: the queue here is empty, and
a round trip of PINGREQ brings no message. So a message that crosses by itself does not cross twice.
A topic that changes during the comparison is skipped, because its change crosses by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.bridge.agreed import AgreedFile
from gateway.bridge.agreement import Agreement, Digest, Step, allowed_instead, digest, step
from gateway.bridge.crossings import Crossings
from gateway.bridge.exchange import NearClient
from gateway.bridge.far import FarConnection
from gateway.bridge.survey import Survey
from gateway.bridge.translate import Translator, Unfit, without_mark
from gateway.broker.fan_out import deliver
from gateway.broker.publish_run import RETAIN, PublishRun
from gateway.broker.queue_limits import is_full
from gateway.broker.retained import Retained
from gateway.config import INSIDE, BridgeSection
from gateway.errors import OncewayError
from gateway.mqtt.packets import Publish
from gateway.mqtt.topics import topic_matches
from gateway.runtime.engine import Engine

log = logging.getLogger(__name__)

RETRY_S = 60.0
"""Seconds until an incomplete or failed comparison is repeated."""
PER_BATCH = 10
BATCH_S = 0.1
"""Seconds in which at most PER_BATCH retained messages are sent."""
_SETTLED_S = 2.0
"""Seconds for which a connection must last before the comparison."""
_NOTHING_HERE_S = 4.0
"""Additional seconds if this gateway has no such messages, so that only theirs can be missing."""
_SOON_S = 0.2
"""Seconds from an agreement to its mark."""
_MARKS = 20
_MARK_S = 30.0
"""Number of marks that may be sent at once, and seconds until one more may be sent."""
_AT_ONCE = 500
"""Number of topics that are compared without a break."""
_MARK_TOPIC = "$onceway/bridge/"


@dataclass(slots=True)
class Link:
    """One connection of the bridge. present: whether the other broker still had our session.
    tries_suspects: whether a message is sent alone, because it may end the connection.
    """

    far: FarConnection
    near: NearClient
    crossings: Crossings
    mark: str
    client: str
    present: bool
    tries_suspects: Callable[[], bool]


class Convergence:
    """The retained messages of one bridge. Runs during each connection."""

    def __init__(self, engine: Engine, section: BridgeSection) -> None:
        self._engine = engine
        self._section = section
        self._file = AgreedFile(engine.broker.config.gateway.data, section.name)
        self.agreement = Agreement(0, {}, 0)
        self._read = False
        """Whether `agreement` was read from the disk."""
        self.differ: int | None = None
        """Topics that differ, None if that is unknown."""
        self.here = self.there = 0
        """Retained messages of both brokers at the last comparison."""
        self.error = ""
        """Why the comparison is not complete, or None."""
        self.proves = True
        """Whether the other broker keeps the mark, so that deletions can be proven."""
        self.refused: dict[str, Digest] = {}
        self._crossing = False
        """Whether messages that make both brokers equal are crossing now."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._marks = float(_MARKS)
        self._marked_at = 0.0

    @property
    def state(self) -> str:
        """The state of the comparison, for people."""
        if not self._section.retained:
            return "off"
        if self.error:
            return self.error
        if self.differ is None:
            return "waiting"
        if self._crossing:
            return "comparing"
        return "differ" if self.differ else "equal"

    async def crossings(self) -> Crossings:
        """Return a new `Crossings` for a new connection."""
        if not self._read:
            held, number = await asyncio.to_thread(self._file.read)
            most = self._engine.broker.limits.retained
            self.agreement, self._read = Agreement(most, held, number), True
        self.agreement.cut()
        return Crossings(self.agreement, self.refused, self._changed.set)

    def begin(self, link: Link) -> None:
        """Compare, and keep the mark up to date, until `end`."""
        if self._section.retained:
            self._task = asyncio.create_task(self._run(link))

    def end(self) -> None:
        self.differ, self._crossing = None, False
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, link: Link) -> None:
        await asyncio.sleep(_SETTLED_S)
        if not self.agreement.topics() and next(self._ours(), None) is None:
            await asyncio.sleep(_NOTHING_HERE_S)
        while True:
            try:
                await self._compare(link)
                self.error = ""
                while not self.differ:
                    await self._changed.wait()
                    await asyncio.sleep(_SOON_S)
                    await self._keep_mark(link)
            except (OncewayError, Unfit) as error:
                self._fail(str(error))
            except Exception as error:
                log.exception("bridge %s: internal error", self._section.name)
                self._fail(f"internal error ({error})")
            await asyncio.sleep(RETRY_S)

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

    async def _compare(self, link: Link) -> None:
        """Compare both brokers, and let the differing messages cross."""
        agreement = self.agreement
        await self._quiet(link)
        before = {found.topic: found for found in self._ours()}
        link.crossings.arrived.clear()
        limits = self._engine.broker.limits
        survey = Survey(self._section, limits.packet_bytes, limits.retained_bytes)
        try:
            await survey.begin(f"{link.client}-r")
            await survey.read([self._mark_topic(link)])
            number = _number(survey.found.pop(self._mark_topic(link), None))
            await survey.read(self._filters())
            known = link.present and agreement.knows(number)
            prefix = self._section.prefix
            missing = [topic for topic in agreement.topics() if prefix + topic not in survey.found]
            if known:
                await survey.read_names(prefix + topic for topic in missing)
            await link.far.settled()
            gone = [] if known else agreement.void()
            steps = await self._steps(link, survey, before, known)
            self.differ, self._crossing = len(steps), True
            await self._cross(link, survey, steps)
            self._crossing = False
            await self._first_mark(link, survey, number or 0, gone)
        finally:
            survey.end()

    async def _quiet(self, link: Link) -> None:
        """Wait until nothing waits for the other side, in either direction."""
        crossings = link.crossings
        while True:
            before = crossings.messages
            if not crossings.open and not self._waiting() and not link.tries_suspects():
                await link.far.settled()
                if crossings.messages == before and not crossings.open and not self._waiting():
                    return
            await asyncio.sleep(BATCH_S)

    def _waiting(self) -> int:
        session = self._engine.broker.sessions.get(self._section.client)
        return 0 if session is None else session.send_flow.messages

    def _filters(self) -> list[str]:
        """Return the filters at the other broker, each once."""
        section = self._section
        return sorted({section.prefix + item for item in (*section.up, *section.down)})

    def _ours(self) -> Iterator[Retained]:
        """Yield our retained messages that belong to the bridge."""
        retained = self._engine.broker.retained
        for item in {*self._section.up, *self._section.down}:
            start = item.partition("+")[0].partition("#")[0]
            start = start.removesuffix("/") if item.endswith("/#") else start
            last: str | None = None
            while found := retained.after(start, last, _AT_ONCE):
                last = found[-1]
                for topic in found:
                    message = retained.get(topic)
                    if message is not None and topic_matches(item, topic):
                        yield message

    def _goes_up(self, topic: str) -> bool:
        return any(topic_matches(item, topic) for item in self._section.up)

    async def _steps(
        self, link: Link, survey: Survey, before: dict[str, Retained], known: bool
    ) -> dict[str, Step]:
        """Return the step for each topic that differs, and note the topics that do not differ."""
        agreement, retained = self.agreement, self._engine.broker.retained
        prefix, readable = self._section.prefix, self._readable(survey)
        theirs_of = {
            topic.removeprefix(prefix): digest(packet.payload)
            for topic, packet in survey.found.items()
            if topic.startswith(prefix) and len(topic) > len(prefix)
        }
        self.here, self.there = len(before), len(theirs_of)
        topics = sorted({*before, *theirs_of, *agreement.topics()})
        found: dict[str, Step] = {}
        for at, topic in enumerate(topics):
            if at % _AT_ONCE == 0:
                await asyncio.sleep(0)
            message = retained.get(topic)
            if (
                message is not before.get(topic)
                or topic in link.crossings.arrived
                or topic.startswith("$")
                or not any(topic_matches(item, topic) for item in readable)
            ):
                continue
            ours = None if message is None else digest(message.payload)
            theirs = theirs_of.get(topic)
            if topic in self.refused and self.refused[topic] == ours:
                continue
            do = step(ours, theirs, agreement.agreed(topic, known=known), up=self._goes_up(topic))
            if do is not Step.NOTHING and not self._may(do, topic):
                do = allowed_instead(do, ours, theirs)
                if do is Step.NOTHING:
                    continue
            if do is Step.NOTHING:
                agreement.note(topic, ours)
            else:
                found[topic] = do
        return found

    def _may(self, do: Step, topic: str) -> bool:
        """Whether the access rules of this gateway let the bridge take a step."""
        acl, client = self._engine.broker.acl, self._section.client
        may = acl.may_read if do is Step.SEND else acl.may_write
        return may(INSIDE, client, topic)

    def _readable(self, survey: Survey) -> list[str]:
        """Return our filters whose retained messages can be read at the other broker."""
        section = self._section
        return [
            item
            for item in {*section.up, *section.down}
            if section.prefix + item not in survey.unreadable
        ]

    # -- what crosses

    async def _cross(self, link: Link, survey: Survey, steps: dict[str, Step]) -> None:
        """Send and take the differing messages, a bounded number per second."""
        retained = self._engine.broker.retained
        seen = {topic: retained.get(topic) for topic in steps}
        failed = 0
        for at, (topic, do) in enumerate(steps.items()):
            if at % PER_BATCH == PER_BATCH - 1:
                await asyncio.sleep(BATCH_S)
            await self._room(link, 10 * PER_BATCH)
            if retained.get(topic) is not seen[topic] or topic in link.crossings.arrived:
                continue  # it has changed since, and crosses by itself
            if do is Step.SEND:
                failed += not self._send(link, topic, seen[topic])
            else:
                packet = survey.found.get(self._section.prefix + topic)
                failed += not await self._take(link, topic, packet)
                self.differ = len(steps) - at - 1 + failed
        self.differ = failed
        await self._room(link, 0)

    async def _room(self, link: Link, most: int) -> None:
        """Wait until at most `most` messages wait for the other broker, and few for ours."""
        while True:
            if self._waiting() <= most and link.crossings.open <= PER_BATCH:
                return
            await asyncio.sleep(BATCH_S)

    def _send(self, link: Link, topic: str, message: Retained | None) -> bool:
        """Queue our retained message, or its deletion, for the other broker. Return False if there
        is no room.
        """
        broker = self._engine.broker
        self._engine.begin()
        session = broker.sessions.get(self._section.client)
        if session is None or session.connection is None:
            return False
        qos = self._section.qos if message is None else min(self._section.qos, message.qos)
        run = PublishRun(
            broker.router.topic(topic),
            b"" if message is None else message.payload,
            qos,
            True,
            properties=b"" if message is None else without_mark(message.properties, link.mark),
            expires=None if message is None else message.expires,
        )
        if is_full(broker, session, run, 1):
            return False
        with broker.step:
            flags = qos << 1 | RETAIN
            deliver(broker, session, run, flags, b"", 0, 1, broker.promise() if qos else 0)
        return True

    async def _take(self, link: Link, topic: str, theirs: Publish | None) -> bool:
        """Publish the other broker's retained message here, or its deletion. Return False if our
        broker refuses it.
        """
        packet: Publish | None = Publish(topic, b"", retain=True)
        if theirs is not None:
            packet = Translator(self._section.prefix, True, link.mark).to_near(theirs)
        if packet is None:
            return False
        packet, waiting = link.crossings.publish(packet)
        link.near.take([packet])
        try:
            async with asyncio.timeout(RETRY_S):
                return await waiting
        except TimeoutError:
            return False

    # -- the mark

    def _mark_topic(self, link: Link) -> str:
        return _MARK_TOPIC + link.mark

    async def _first_mark(self, link: Link, survey: Survey, least: int, gone: list[str]) -> None:
        """Write a mark and read it, to find out whether the other broker keeps it."""
        agreement = self.agreement
        await link.far.settled()
        topic = self._mark_topic(link)
        if agreement.has_fresh or gone or (agreement.topics() and not agreement.knows(least)):
            number = agreement.begin_mark(least)
            written = await survey.write(topic, str(number).encode())
            await survey.read([topic])
            proves = written and _number(survey.found.get(topic)) == number
            if self.proves and not proves:
                log.warning(
                    "bridge %s: the other broker does not keep the message %s, so deletions of"
                    " retained messages during an outage do not cross. Let the bridge's user write"
                    " and read that topic there",
                    self._section.name,
                    topic,
                )
            self.proves = proves
            if self.proves:
                await self._marked(number, gone)
            elif gone:
                await asyncio.to_thread(self._file.write, {}, 0, gone)
        else:
            self.proves = True

    async def _keep_mark(self, link: Link) -> None:
        """Cover new agreements by a mark, on the average at most one in _MARK_S."""
        agreement, loop = self.agreement, asyncio.get_running_loop()
        self._changed.clear()
        crossings, retained = link.crossings, self._engine.broker.retained
        unsure, crossings.unsure = crossings.unsure, {}
        for topic, state in unsure.items():
            message = retained.get(topic)
            if state == (None if message is None else digest(message.payload)):
                agreement.note(topic, state)
        if not agreement.has_fresh or not self.proves:
            return
        self._marks = min(_MARKS, self._marks + (loop.time() - self._marked_at) / _MARK_S)
        self._marked_at = loop.time()
        if self._marks < 1:
            await asyncio.sleep((1 - self._marks) * _MARK_S)
        self._marks -= 1
        number = agreement.begin_mark()
        link.far.send(Publish(self._mark_topic(link), str(number).encode(), 0, 0, True))
        await link.far.settled()
        await self._marked(number)

    async def _marked(self, number: int, gone: list[str] | None = None) -> None:
        changed = self.agreement.marked(number)
        await asyncio.to_thread(self._file.write, changed, number, gone or ())


def _number(packet: Publish | None) -> int | None:
    """Return the number in a mark, None without a mark."""
    text = b"" if packet is None else packet.payload
    return int(text) if text.isdigit() and len(text) < 16 else None
