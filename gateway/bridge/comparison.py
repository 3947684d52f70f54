"""The comparison of our retained messages with those of the other broker.

In: our retained messages, a survey of the other broker's retained messages, and the agreements.
Out: the step for each topic, and the topics that are equal or cannot be forwarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from gateway.bridge.agreement import (
    Agreement,
    Digest,
    Step,
    allowed_instead,
    digest,
    digest_of,
)
from gateway.bridge.own_topics import OwnTopics
from gateway.bridge.survey import Survey
from gateway.bridge.translate import crosses, decoded, returned
from gateway.broker.core import Core
from gateway.broker.retained import Retained
from gateway.config import INSIDE, BridgeSection
from gateway.mqtt.packets import Publish
from gateway.mqtt.topics import topic_matches

_AT_ONCE = 500
"""Number of topics that are compared before other work of the event loop gets its turn."""


@dataclass(slots=True)
class Difference:
    """The outcome of a comparison. retained_there: number of retained messages of the other broker.
    steps: by topic, the step that makes both brokers equal. equal: by topic, the digest of the
    message that both brokers have. stuck: number of topics without a step, because their message
    cannot be forwarded, or cannot be read at the other broker.
    """

    retained_there: int
    steps: dict[str, Step] = field(default_factory=dict)
    equal: dict[str, Digest] = field(default_factory=dict)
    stuck: int = 0


class Comparison:
    """The comparison of both brokers' retained messages, for one bridge. refused: digests, by
    topic, of messages that the other broker can never accept.
    """

    def __init__(
        self, core: Core, section: BridgeSection, refused: dict[str, Digest], own: OwnTopics
    ) -> None:
        self._core = core
        self._own = own
        self._section = section
        self._refused = refused

    @property
    def filters(self) -> list[str]:
        """Filters of the bridge, with the prefix that topics have at the other broker."""
        section = self._section
        return sorted({section.prefix + item for item in (*section.up, *section.down)})

    def ours(self) -> Iterator[Retained]:
        """Yield our retained messages whose topics match a filter of the bridge."""
        retained = self._core.retained
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

    async def difference(
        self,
        agreement: Agreement,
        survey: Survey,
        before: dict[str, Retained],
        arrived: Collection[str],
        *,
        known: bool,
        mark: str,
        only: Collection[str] | None = None,
    ) -> Difference:
        """Return how the retained messages of both brokers differ. before: our messages by topic,
        before the survey. arrived: topics of messages that have come from the other broker since
        `before` was read. known: whether the other broker has lost no message since the last mark.
        mark: the mark that this bridge adds to messages. only: the topics that were read, None for
        all.
        """
        retained, prefix = self._core.retained, self._section.prefix
        theirs_of = {
            topic.removeprefix(prefix): digest(packet.payload, packet.properties)
            for topic, packet in survey.found.items()
            if topic.startswith(prefix) and len(topic) > len(prefix)
        }
        readable = self._readable(survey)
        found = Difference(len(theirs_of))
        topics = {*before, *theirs_of, *agreement.topics()} if only is None else only
        for at, topic in enumerate(sorted(topics)):
            if at % _AT_ONCE == 0:
                await asyncio.sleep(0)
            message = retained.get(topic)
            if message is not before.get(topic) or topic in arrived:
                continue  # the message crosses by itself
            if topic.startswith("$") or not crosses(self._section, topic):
                continue
            ours, theirs = digest_of(message), theirs_of.get(topic)
            if not any(topic_matches(item, topic) for item in readable):
                found.stuck += message is not None
                continue
            up = any(topic_matches(item, topic) for item in self._section.up)
            do = agreement.step(topic, ours, theirs, known=known, up=up)
            packet = survey.found.get(prefix + topic)
            if do is Step.SEND and self._own.is_newer(topic, packet, message):
                continue  # the board's next reading replaces both messages
            if self._has_looped(do, topic, message, packet, mark):
                found.stuck += 1
                continue
            self._add(found, topic, do, ours, theirs)
        return found

    def _has_looped(
        self, do: Step, topic: str, message: Retained | None, packet: Publish | None, mark: str
    ) -> bool:
        """Whether a message that has crossed this bridge came back over another bridge, with more
        levels in front of its topic. Each further crossing would make the topic longer.
        """
        if do is Step.SEND and message is not None:
            properties, state = decoded(message.properties), digest_of(message)
        elif do is Step.TAKE and packet is not None:
            properties, state = packet.properties or {}, digest(packet.payload, packet.properties)
        else:
            return False
        if not returned(properties, mark):
            return False
        levels = topic.split("/")
        ends = ("/".join(levels[at:]) for at in range(1, len(levels)))
        return any(digest_of(self._core.retained.get(end)) == state for end in ends)

    def _add(self, found: Difference, topic: str, do: Step, ours: Digest, theirs: Digest) -> None:
        """Add the result for one topic: its step, or its digest if it is equal at both brokers."""
        if do is Step.NOTHING:
            found.equal[topic] = ours
        elif (do := self._permitted(do, topic, ours, theirs)) is Step.SEND and (
            topic in self._refused and self._refused[topic] == ours
        ):
            found.stuck += 1
        elif do is not Step.NOTHING:
            found.steps[topic] = do

    def _permitted(self, do: Step, topic: str, ours: Digest, theirs: Digest) -> Step:
        """Return `do` if access rules permit this step. Otherwise return the opposite step if that
        is possible and permitted, or NOTHING.
        """
        if self._may(do, topic):
            return do
        do = allowed_instead(do, ours, theirs)
        return do if self._may(do, topic) else Step.NOTHING

    def _may(self, do: Step, topic: str) -> bool:
        """Whether this gateway's access rules permit a step with a topic. To send, the bridge needs
        the right to read the topic here; for any other step, the right to write.
        """
        acl, client = self._core.acl, self._section.client
        may = acl.may_read if do is Step.SEND else acl.may_write
        return may(INSIDE, client, topic)

    def _readable(self, survey: Survey) -> list[str]:
        """Return the filters of the bridge that the survey could read at the other broker."""
        section = self._section
        return [
            item
            for item in {*section.up, *section.down}
            if section.prefix + item not in survey.unreadable
        ]
