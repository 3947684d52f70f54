"""The comparison of retained messages, ours with those of the other broker of a bridge.

In: for each topic, the digest of our retained payload, of theirs, and of the payload that both had.
Out: whether ours is sent, theirs is taken, or nothing is done. No I/O.

Rules, for one topic:

- Equal payloads need nothing.
- If one side changed since both agreed, that change wins. A deletion is a change.
- If both changed, ours wins for a topic of `up`, theirs for any other.
- Without an agreement there is no deletion: the message of the side that has one wins.

An agreement counts only if the other broker still has everything that it had at the time of the
agreement. The proof is a number in a retained message at the other broker, the *mark*. The bridge
writes a higher number after both sides agreed. If the other broker shows a lower number, it has
lost later messages, and no agreement counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from hashlib import blake2b

Digest = bytes | None
"""Digest of a payload, None if there is no retained message."""

_DIGEST_BYTES = 16


class Step(Enum):
    """The step that makes both sides equal in one topic."""

    NOTHING = 0
    SEND = 1
    """The other broker gets our state, which may be a deletion."""
    TAKE = 2
    """We get the state of the other broker, which may be a deletion."""


def digest(payload: bytes) -> Digest:
    """Return the digest of a retained payload. An empty payload is a deletion."""
    return blake2b(payload, digest_size=_DIGEST_BYTES).digest() if payload else None


def step(ours: Digest, theirs: Digest, agreed: Digest, *, up: bool) -> Step:
    """Return what a topic needs. agreed: None without a valid agreement."""
    if ours == theirs:
        return Step.NOTHING
    if theirs == agreed:
        return Step.SEND
    if ours == agreed:
        return Step.TAKE
    return Step.SEND if up else Step.TAKE


def allowed_instead(forbidden: Step, ours: Digest, theirs: Digest) -> Step:
    """Return the step for a topic if access rules forbid the right one: the state of the other
    side, if that side has a message.
    """
    if forbidden is Step.TAKE:
        return Step.NOTHING if ours is None else Step.SEND
    return Step.NOTHING if theirs is None else Step.TAKE


class Agreement:
    """Digests by topic, and the number of the mark that covers them. most: largest number of
    topics. held, number: content of the file.
    """

    def __init__(self, most: int, held: dict[str, bytes], number: int) -> None:
        self._most = most
        self._held = held
        self.number = number
        """Number of the last mark that the other broker has confirmed."""
        self._fresh: dict[str, Digest] = {}
        """Agreements that no mark covers yet."""
        self._written: dict[str, Digest] = {}
        """Agreements that are covered by the mark that is being written."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_fresh(self) -> bool:
        """Whether a new mark is needed."""
        return bool(self._fresh)

    def note(self, topic: str, state: Digest) -> None:
        """Note that both brokers have the same state of a topic."""
        if self._held.get(topic) != state or topic in self._written:
            self._fresh[topic] = state
        else:
            self._fresh.pop(topic, None)

    def agreed(self, topic: str, *, known: bool) -> Digest:
        """Return the agreement about a topic. known: whether the other broker has everything that
        it had.
        """
        return self._held.get(topic) if known else None

    def topics(self) -> Iterable[str]:
        """Return the topics with an agreement."""
        return self._held.keys()

    def knows(self, number: int | None) -> bool:
        """Whether a mark proves that the other broker has everything that both agreed on."""
        return number is not None and 0 < self.number <= number

    def begin_mark(self, least: int = 0) -> int:
        """Return the number of a mark that covers all agreements noted until now. least: a number
        that the other broker already has.
        """
        self._written |= self._fresh
        self._fresh = {}
        return max(self.number, least) + 1

    def marked(self, number: int) -> dict[str, Digest]:
        """Note that the other broker has the mark with a number. Return the changed agreements."""
        changed: dict[str, Digest] = {}
        for topic, state in self._written.items():
            if state is None:
                self._held.pop(topic, None)
            elif topic in self._held or len(self._held) < self._most:
                self._held[topic] = state
            else:
                continue
            changed[topic] = state
        self._written, self.number = {}, number
        return changed

    def cut(self) -> None:
        """Forget agreements that no mark covers, because the connection is lost. The older
        agreements about their topics are dropped, too: with them, a newer change back to the older
        state would not be noticed.
        """
        for topic in self._fresh.keys() | self._written.keys():
            self._held.pop(topic, None)
        self._fresh, self._written = {}, {}

    def void(self) -> list[str]:
        """Drop all agreements, because the other broker has lost messages. Return their topics."""
        topics = list(self._held)
        self._held.clear()
        self.cut()
        return topics
