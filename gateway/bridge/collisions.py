"""Retained topics that may differ because messages passed each other on the way.

In: the retained messages that cross during one connection, and messages that come back in a loop of
bridges. Out: topics to read again at the other broker, and when to read them.

If both brokers change a topic at the same moment, each broker gets the message of the other one
last, so they keep different messages. No later message reveals this. So a topic is in doubt if
different messages crossed in both directions while one of them could still be on its way. The same
holds for messages at two QoS levels, because a message may overtake an earlier one. A message in a
loop replaces our message without crossing: in that case the topic is in doubt unless the same
message crossed last. If topics are in doubt again and again, the wait before they are read doubles
each time, up to LONGEST_S. After the first FREE_BYTES, the bridge reads BYTES_PER_S on average. A
random factor from 1 to 2 lengthens each wait, so that the bridges of one loop do not all read at
once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gateway.bridge.agreement import Digest

FIRST_S = 2.0
"""Shortest wait until topics that may differ are read, in seconds."""
LONGEST_S = 60.0
QUIET_S = 5.0
"""If a topic comes into doubt within `3 * last wait + QUIET_S` seconds after the end of the last
read, the next wait is twice as long as the last one. If it comes into doubt later, the next wait is
FIRST_S.
"""
FREE_BYTES = 5_000
BYTES_PER_S = 10
READ_BYTES = 350
"""Bytes that are transferred when topics are read, in addition to the messages: connection and
filters.
"""
ON_THE_WAY_S = 5.0
"""Seconds for which a sent message counts as on its way, even if no message is in flight any more.
"""
_MOST = 10_000
"""Largest number of remembered topics, and of topics in doubt. If there are more remembered topics,
the oldest one is forgotten. If there are more topics in doubt, further ones are ignored; the next
comparison of all topics finds them.
"""

Way = tuple[bool, int] | None
"""Direction (True: to the other broker) and QoS of a topic's messages. None if the messages had
several directions or QoS levels, or if the topic was read last (`was_read`).
"""


class _Crossing(NamedTuple):
    """The last known message of a topic. state: its digest. at: when it was noted, in seconds."""

    way: Way
    state: Digest
    at: float


class Collisions:
    """Topics of one connection that may differ at the two brokers (*in doubt*). now: returns the
    time in seconds. on_doubt: called if a topic is in doubt and none was before. jitter: returns a
    random factor for each wait.
    """

    def __init__(
        self,
        now: Callable[[], float],
        on_doubt: Callable[[], None] = lambda: None,
        jitter: Callable[[], float] = lambda: random.uniform(1, 2),  # noqa: S311
    ) -> None:
        self._now = now
        self._on_doubt = on_doubt
        self._jitter = jitter
        self._last: dict[str, _Crossing] = {}
        self.topics: dict[str, None] = {}
        """Topics that may differ at the two brokers."""
        self._due_at = math.inf
        self._wait_s = FIRST_S
        self._ended_at = -math.inf
        self._spent = 0.0
        """Bytes that were read at the other broker. BYTES_PER_S are subtracted as time passes."""

    def crosses(self, topic: str, way: Way, state: Digest) -> None:
        """Note that a message is forwarded in the direction and at the QoS of `way`."""
        last = self._last.get(topic)
        if last is not None and last.way != way:
            if last.state != state:
                self.doubt([topic])
            way = None
        self._note(topic, way, state)

    def returns(self, topic: str, state: Digest) -> None:
        """Handle a message that came back in a loop, and is not forwarded. The topic is in doubt
        unless the same message crossed last.
        """
        last = self._last.get(topic)
        if last is None or last.state != state:
            self.doubt([topic])

    def was_read(self, topic: str, state: Digest) -> None:
        """Note that a topic was read and has the same state at both brokers. An older message may
        still be on its way. So if another state of the topic crosses soon, the topic is in doubt
        again.
        """
        self._note(topic, None, state)

    def _note(self, topic: str, way: Way, state: Digest) -> None:
        self._last.pop(topic, None)
        self._last[topic] = _Crossing(way, state, self._now())
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]

    def doubt(self, topics: Iterable[str]) -> None:
        """Note that topics may differ. If no topic was in doubt before, set the time at which they
        are read.
        """
        before = len(self.topics)
        for topic in topics:
            if len(self.topics) < _MOST:
                self.topics[topic] = None
        if before or not self.topics:
            return
        self._on_doubt()
        now = self._now()
        if now - self._ended_at > 3 * self._wait_s + QUIET_S:
            self._wait_s = FIRST_S
        else:
            self._wait_s = min(2 * self._wait_s, LONGEST_S)
        allowed_at = self._ended_at + (self._spent - FREE_BYTES) / BYTES_PER_S
        self._due_at = max(now + self._wait_s * self._jitter(), allowed_at)

    # -- reading

    @property
    def left_s(self) -> float:
        """Seconds until topics that may differ are read; infinite if there are none."""
        return max(0.0, self._due_at - self._now()) if self.topics else math.inf

    def take(self) -> list[str]:
        """Return the topics whose messages are about to be read, and empty `topics`."""
        found, self.topics = list(self.topics), {}
        return found

    def ended(self, size: int) -> None:
        """Note the end of the read for which `take` was called. size: bytes of the messages that
        were read.
        """
        now = self._now()
        earlier = max(0.0, self._spent - (now - self._ended_at) * BYTES_PER_S)
        self._spent, self._ended_at = earlier + size + READ_BYTES, now

    # -- messages on the way

    @property
    def forgets(self) -> bool:
        """Whether the oldest remembered message crossed more than ON_THE_WAY_S ago, so that it can
        be forgotten when no message is in flight.
        """
        return bool(self._last) and self._now() - next(iter(self._last.values())).at > ON_THE_WAY_S

    def forget(self, before: float) -> None:
        """Forget the messages that crossed more than ON_THE_WAY_S before the time `before`. No
        message may have been in flight at that time.
        """
        for topic, last in list(self._last.items()):
            if last.at >= before - ON_THE_WAY_S:
                break
            del self._last[topic]
