"""The rules by which a bridge compares our retained messages with those of the other broker.

In: for each topic, the digests of our message, of the other broker's message, and of the message
that both brokers had last (the *agreement*). Out: whether our message is sent, theirs is taken, or
nothing is done. There is no I/O.

Rules, for one topic:

- Equal messages need nothing.
- If one side changed since the agreement, that change wins. A deletion is a change.
- If both sides changed, our message wins for a topic of `up`, theirs for any other topic.
- Without an agreement nothing is deleted: if only one side has a message, that message wins.

An agreement counts only if the other broker has lost no message since the agreement was noted. The
proof is a number in a retained message of the other broker, the *mark*. The bridge writes a higher
number after both sides agreed. If the mark has a lower number than the bridge expects, the other
broker has lost messages. Then no agreement counts.

A topic is *in doubt* from the time before its retained message is forwarded until a mark covers the
new state. The doubt is noted in memory and on disk. After the connection has broken, the old
agreement cannot show which side has changed. If one side still has the old state, the side that
sent last wins, whether or not its message arrived. A deletion wins only over the old state.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from hashlib import blake2b

from gateway.bridge.translate import MARK, decoded
from gateway.broker.retained import Retained
from gateway.mqtt.properties import Properties, PropertyId

Digest = bytes | None
"""Digest of a payload, None if there is no retained message."""

_DIGEST_BYTES = 16
_ON_THE_WAY = (
    PropertyId.MESSAGE_EXPIRY_INTERVAL,
    PropertyId.TOPIC_ALIAS,
    PropertyId.SUBSCRIPTION_IDENTIFIER,
)
"""Properties that change with the connection or with time, and are not compared."""


class Step(Enum):
    """The step that makes a topic equal at both brokers."""

    NOTHING = 0
    SEND = 1
    """Send our message, or its deletion, to the other broker."""
    TAKE = 2
    """Send the other broker's message, or its deletion, to our broker."""


def digest(payload: bytes, properties: Properties | None = None) -> Digest:
    """Return the digest of a retained message, None for an empty payload, which is a deletion. The
    digest leaves out marks of bridges (`translate.py`), and properties that change with the
    connection or the time.
    """
    if not payload:
        return None
    found = blake2b(payload, digest_size=_DIGEST_BYTES)
    for key, value in sorted((properties or {}).items()):
        if key == PropertyId.USER_PROPERTY:
            value = [item for item in value if item[0] != MARK]
        if value != [] and key not in _ON_THE_WAY:
            found.update(repr((int(key), value)).encode())
    return found.digest()


def digest_of(message: Retained | None) -> Digest:
    """Return the digest of a retained message of our broker, None if there is no message."""
    if message is None:
        return None
    return digest(message.payload, decoded(message.properties) if message.properties else None)


def step(ours: Digest, theirs: Digest, agreed: Digest, *, up: bool) -> Step:
    """Return the step that makes a topic equal at both brokers. agreed: digest of the message that
    both brokers had last; None if they had none, or if no agreement counts. up: whether our message
    wins if both brokers have changed the topic.
    """
    if ours == theirs:
        return Step.NOTHING
    if theirs == agreed:
        return Step.SEND
    if ours == agreed:
        return Step.TAKE
    return Step.SEND if up else Step.TAKE


def step_in_doubt(ours: Digest, theirs: Digest, old: Digest, *, up: bool, sent: bool) -> Step:
    """Return the step for a topic in doubt. old: digest of the message that both brokers had last.
    up: as for `step`. sent: whether the last forwarded message went to the other broker.
    """
    if ours == theirs:
        return Step.NOTHING
    ours_wins = sent if old in (ours, theirs) else up
    first, second = (ours, theirs) if ours_wins else (theirs, ours)
    if first is None and second != old:
        ours_wins = not ours_wins
    return Step.SEND if ours_wins else Step.TAKE


def allowed_instead(forbidden: Step, ours: Digest, theirs: Digest) -> Step:
    """Return the step in place of a step that access rules forbid: the opposite step, or NOTHING if
    the opposite step would delete a message.
    """
    if forbidden is Step.TAKE:
        return Step.NOTHING if ours is None else Step.SEND
    return Step.NOTHING if theirs is None else Step.TAKE


class Agreement:
    """The agreements of one bridge: for each topic, the digest of the message that both brokers had
    last. most: largest number of topics. agreements, number, doubted: as in `agreed.Kept`.
    """

    def __init__(
        self,
        most: int,
        agreements: dict[str, bytes],
        number: int,
        doubted: dict[str, bool] | None = None,
    ) -> None:
        self._most = most
        self._agreements = agreements
        self.number = number
        """Number of the last mark whose storing the other broker has confirmed."""
        self._doubted = doubted or {}
        """Topics in doubt, with the direction of the last forwarded message: True if it went to the
        other broker.
        """
        self._last: dict[str, Digest] = {}
        """States on which both brokers agree and which no confirmed mark covers yet, by topic: the
        digest of the message, None if neither broker has one.
        """
        self._written: dict[str, Digest] = {}
        """States that the mark in progress covers: a copy of `_last`, made when the mark was begun.
        """

    def __len__(self) -> int:
        return len(self._agreements)

    @property
    def has_fresh(self) -> bool:
        """Whether a new mark is needed: a topic is equal at both brokers, and no mark covers this
        state.
        """
        return bool(self._last)

    def doubt(self, topics: Iterable[str], *, sent: bool) -> list[str]:
        """Note that retained messages of these topics are about to be forwarded. sent: whether they
        go to the other broker. Return the topics that must be noted on disk before the messages are
        forwarded.
        """
        found = []
        for topic in topics:
            if topic in self._agreements and self._doubted.get(topic) is not sent:
                found.append(topic)
            self._doubted[topic] = sent
            self._last.pop(topic, None)
        return found

    def note(self, topic: str, state: Digest) -> None:
        """Note that both brokers have the same message of a topic, or both none. state: the
        message's digest; None for none.
        """
        if topic in self._doubted or self._agreements.get(topic) != state:
            self._doubted.setdefault(topic, True)
            self._last[topic] = state

    def differs(self, topic: str, state: Digest) -> bool:
        """Whether a digest differs from the agreed digest of a topic, or the topic is in doubt."""
        return topic in self._doubted or self._agreements.get(topic) != state

    def step(self, topic: str, ours: Digest, theirs: Digest, *, known: bool, up: bool) -> Step:
        """Return the step that makes a topic equal at both brokers. known: whether the other broker
        has lost no message since the last mark. up: whether our message wins if both brokers have
        changed it.
        """
        if not known:
            return step(ours, theirs, None, up=up)
        old = self._agreements.get(topic)
        sent = self._doubted.get(topic)
        if sent is None:
            return step(ours, theirs, old, up=up)
        if topic in self._last and (theirs != old or self._last[topic] == old):
            return step(ours, theirs, self._last[topic], up=up)
        return step_in_doubt(ours, theirs, old, up=up, sent=sent)

    def topics(self) -> Iterable[str]:
        """Return the topics with an agreement."""
        return self._agreements.keys()

    def knows(self, number: int | None) -> bool:
        """Whether a mark proves that the other broker has lost no message since the last confirmed
        mark. number: the number in the mark, None if the other broker has no mark.
        """
        return number is not None and 0 < self.number <= number

    def begin_mark(self, least: int = 0) -> int:
        """Begin a new mark, which covers all states noted so far, and return its number. least:
        number of the mark at the other broker; the new number is higher.
        """
        self._written = dict(self._last)
        return max(self.number, least) + 1

    def confirm_mark(self, number: int) -> dict[str, Digest]:
        """Note that the other broker has the mark with this number. Return the agreements that the
        mark has changed: digest by topic, None for a deletion.
        """
        changed: dict[str, Digest] = {}
        for topic, state in self._written.items():
            if topic not in self._last or self._last[topic] != state:
                continue  # the message has changed since
            del self._last[topic], self._doubted[topic]
            if state is None:
                self._agreements.pop(topic, None)
            elif topic in self._agreements or len(self._agreements) < self._most:
                self._agreements[topic] = state
            else:
                continue
            changed[topic] = state
        self._written, self.number = {}, number
        return changed

    def void(self) -> None:
        """Drop all agreements and doubts, because the other broker has lost messages."""
        for content in (self._agreements, self._doubted, self._last, self._written):
            content.clear()
