"""A topic that both ends of a bridge change while messages are on the way, in a model with
a clock.
"""

import heapq
import math
from collections.abc import Callable
from itertools import count, pairwise
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.bridge import collisions as module
from gateway.bridge.agreement import Agreement, Digest, Step
from gateway.bridge.collisions import (
    BYTES_PER_S,
    FIRST_S,
    FREE_BYTES,
    LONGEST_S,
    ON_THE_WAY_S,
    READ_BYTES,
    Collisions,
)
from gateway.bridge.crossings import Crossings
from gateway.mqtt.packets import Publish

TOPIC = "t"
MANY = 300
ROUNDS = 6
"""Number of readings after which both ends must be equal, if no more changes come."""
UP, DOWN = (True, 1), (False, 1)


class Clock:
    """A clock that a test moves, with callbacks that run when their time has come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._count), call))

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, _, call = heapq.heappop(self._due)
            call()
        self.now = until


class Line:
    """A bridge, two brokers with one topic, and the messages on the way between them. Messages with
    the same QoS stay in order. A message may overtake messages with another QoS.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.collisions = Collisions(lambda: self.clock.now, jitter=lambda: 1)
        self.agreement = Agreement(10, {}, 0)
        self.here: Digest = None
        self.there: Digest = None
        self.waiting: list[tuple[int, Digest]] = []
        """Messages that the gateway has not yet sent over the bridge: QoS and state of each."""
        self.up: list[tuple[int, Digest]] = []
        self.down: list[tuple[int, Digest]] = []
        self.reading: tuple[Digest, Digest] | None = None
        """States of both brokers at the start of the reading in progress; None if there is none."""
        self.touched = False
        """Whether the state at the gateway has changed since the reading in progress began."""
        self.reads = 0

    def change(self, here: bool, state: bytes, qos: int) -> None:
        if here:
            self.here, self.touched = state or None, True
            self.waiting.append((qos, self.here))
        else:
            self.there = state or None
            self.down.append((qos, self.there))

    def leaves(self) -> None:
        if self.waiting:
            qos, state = self.waiting.pop(0)
            self.agreement.doubt([TOPIC], sent=True)
            self.collisions.crosses(TOPIC, (True, qos), state)
            self.up.append((qos, state))

    def arrives(self, here: bool, overtakes: bool) -> None:
        line = self.down if here else self.up
        if not line:
            return
        others = [at for at, (qos, _) in enumerate(line) if qos != line[0][0]]
        qos, state = line.pop(others[0] if overtakes and others else 0)
        if here:
            self.agreement.doubt([TOPIC], sent=False)
            self.collisions.crosses(TOPIC, (False, qos), state)
            self.here, self.touched = state, True
        else:
            self.there = state
        self.agreement.note(TOPIC, state)

    def passes(self, seconds: float) -> None:
        self.clock.run(self.clock.now + seconds)
        if self.collisions.forgets and not (self.waiting or self.up or self.down):
            self.collisions.forget(self.clock.now)

    def mark(self) -> None:
        self.agreement.confirm_mark(self.agreement.begin_mark())

    def begins(self) -> None:
        """Begin to read both states. Before the read, all waiting messages leave, and all messages
        on the way arrive.
        """
        if self.reading is None and not self.collisions.left_s:
            while self.waiting:
                self.leaves()
            while self.up:
                self.arrives(False, False)
            self.collisions.take()
            self.reading, self.touched = (self.here, self.there), False
            self.reads += 1

    def ends(self) -> None:
        if self.reading is None:
            return
        (ours, theirs), self.reading = self.reading, None
        if not self.touched:
            do = self.agreement.step(TOPIC, ours, theirs, known=True, up=True)
            state = theirs if do is Step.TAKE else ours
            self.collisions.was_read(TOPIC, state)
            if do is Step.SEND:
                self.waiting.append((1, ours))
            else:
                self.agreement.doubt([TOPIC], sent=False)
                self.here, self.touched = state, True
                self.agreement.note(TOPIC, state)
        self.collisions.ended(50)

    def settles(self) -> None:
        """Let all messages arrive, and read both states until no topic is in doubt. Assert that
        both states are then equal, and that at most ROUNDS readings were needed.
        """
        before = self.reads
        while self.waiting or self.up or self.down or self.reading or self.collisions.topics:
            self.ends()
            while self.waiting or self.up or self.down:
                self.leaves()
                self.arrives(False, False)
                self.arrives(True, False)
            self.clock.run(self.clock.now + LONGEST_S)
            self.begins()
        assert self.here == self.there
        assert self.reads - before <= ROUNDS


_STATES = st.sampled_from([b"", b"a", b"b", b"c"])
_CHANGES = st.tuples(st.just("change"), st.booleans(), _STATES, st.sampled_from([0, 1, 1, 1]))
_ARRIVALS = st.tuples(st.just("arrives"), st.booleans(), st.booleans())
_TIMES = st.tuples(st.just("passes"), st.sampled_from([0.1, 3.0, 6.0, 70.0]))
_OTHERS = st.tuples(st.sampled_from(["leaves", "leaves", "mark", "begins", "ends"]))
_SCHEDULES = st.lists(_CHANGES | _ARRIVALS | _TIMES | _OTHERS | _OTHERS, max_size=40)


def _run(schedule: list[tuple[object, ...]]) -> Line:
    line = Line()
    for name, *values in schedule:
        call: Callable[..., None] = getattr(line, str(name))
        call(*values)
    line.settles()
    return line


CROSSED: list[tuple[object, ...]] = [
    ("change", True, b"a", 1),
    ("change", False, b"b", 1),
    ("leaves",),
    ("arrives", True, False),
    ("arrives", False, False),
]
"""Steps by which a message of each end is on the way at the same time."""


@settings(max_examples=MANY, deadline=None)
@example(CROSSED)
@given(_SCHEDULES)
def test_changes_on_a_live_line_end_equal(schedule: list[tuple[object, ...]]) -> None:
    _run(schedule)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None)
@given(_SCHEDULES)
def test_changes_on_a_live_line_end_equal_in_ten_thousand_schedules(
    schedule: list[tuple[object, ...]],
) -> None:
    _run(schedule)


def test_model_notices_a_bridge_without_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(CROSSED).reads == 1
    monkeypatch.setattr(Collisions, "doubt", lambda self, topics: None)
    with pytest.raises(AssertionError):
        _run(CROSSED)


def test_changes_of_one_end_or_far_apart_are_not_read() -> None:
    line = Line()
    for number in range(20):
        here = number % 2 == 0 if number >= 10 else True
        line.change(here, b"%d" % number, 1)
        line.leaves()
        line.arrives(not here, False)
        line.passes(1.0 if number < 9 else ON_THE_WAY_S + 1)
    assert not line.collisions.topics
    assert (line.reads, line.here) == (0, line.there)


def test_topic_that_both_ends_change_all_day_is_read_rarely() -> None:
    clock = Clock()
    doubts = Collisions(lambda: clock.now)
    reads = []
    for second in range(86_400):
        clock.now = float(second)
        doubts.crosses(TOPIC, UP if second % 2 else DOWN, b"%d" % second)
        if not doubts.left_s:
            doubts.take()
            doubts.ended(50)
            reads.append(second)
    assert len(reads) * (READ_BYTES + 50) <= FREE_BYTES + 86_400 * BYTES_PER_S
    assert reads[0] <= 3 * FIRST_S
    assert max(b - a for a, b in pairwise(reads)) <= 2 * LONGEST_S + 2
    clock.now += 1_000
    doubts.doubt([TOPIC])
    assert doubts.left_s <= 2 * FIRST_S, "a calm hour ends the long waits"


def test_message_that_comes_back_is_doubted_unless_it_crossed_last() -> None:
    clock = Clock()
    doubts = Collisions(lambda: clock.now)
    doubts.crosses(TOPIC, UP, b"a")
    doubts.returns(TOPIC, b"a")
    assert not doubts.topics
    assert doubts.left_s == math.inf
    doubts.crosses(TOPIC, UP, b"b")
    doubts.returns(TOPIC, b"a")
    assert doubts.take() == [TOPIC]
    doubts.returns("other", None)
    assert doubts.take() == ["other"]


def test_memory_of_doubts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    doubts = Collisions(lambda: 0.0)
    for number in range(9):
        doubts.crosses(str(number), UP, b"a")
    for number in range(9):
        doubts.crosses(str(number), DOWN, b"b")
    assert doubts.take() == []
    doubts.doubt(map(str, range(9)))
    assert doubts.take() == ["0", "1", "2"]


class Node:
    """A gateway or broker with one topic and several bridges."""

    def __init__(self) -> None:
        self.state: Digest = None
        self.bridges: list[Bridge] = []
        self.version = 0

    def publish(self, state: Digest, marks: frozenset[object], by: object = None) -> None:
        self.state, self.version = state, self.version + 1
        for bridge in self.bridges:
            if bridge is not by:
                bridge.forward(state, marks, bridge.near is self)


class Bridge:
    """A bridge that sends messages from `near` to `far`. down: it also sends messages from `far` to
    `near`.
    """

    def __init__(self, clock: Clock, random: Random, near: Node, far: Node, down: bool) -> None:
        self._clock, self._random, self.near, self.far = clock, random, near, far
        near.bridges.append(self)
        if down:
            far.bridges.append(self)
        self.doubts = Collisions(lambda: clock.now, jitter=lambda: random.uniform(1, 2))
        self._agreement = Agreement(10, {}, 0)
        self._arrival = [0.0, 0.0]
        self.reads = False
        self._look()

    def forward(self, state: Digest, marks: frozenset[object], up: bool) -> None:
        if up:
            self._cross(state, marks, up)
        self._arrival[up] = max(self._arrival[up], self._clock.now) + self._delay()
        self._clock.later(
            self._arrival[up] - self._clock.now, lambda: self._arrive(state, marks, up)
        )

    def _cross(self, state: Digest, marks: frozenset[object], up: bool) -> None:
        if self in marks:
            self.doubts.returns(TOPIC, state)
        else:
            self._agreement.doubt([TOPIC], sent=up)
            self.doubts.crosses(TOPIC, UP if up else DOWN, state)

    def _arrive(self, state: Digest, marks: frozenset[object], up: bool) -> None:
        if not up:
            self._cross(state, marks, up)
        if self not in marks:
            (self.far if up else self.near).publish(state, marks | {self}, self)
            self._agreement.note(TOPIC, state)

    def _delay(self) -> float:
        return self._random.uniform(0.001, 0.05)

    def _look(self) -> None:
        self._clock.later(0.1, self._look)
        if not self.reads and not self.doubts.left_s:
            self.reads = True
            self.doubts.take()
            version = self.near.version
            self._clock.later(0.2 + self._delay(), lambda: self._read(version))

    def _read(self, version: int) -> None:
        theirs = self.far.state
        self._clock.later(0.2 + self._delay(), lambda: self._compare(version, theirs))

    def _compare(self, version: int, theirs: Digest) -> None:
        ours = self.near.state
        if self.near.version == version:
            do = self._agreement.step(TOPIC, ours, theirs, known=True, up=True)
            self.doubts.was_read(TOPIC, theirs if do is Step.TAKE else ours)
            if do is Step.SEND:
                self.forward(ours, frozenset(), True)
            elif do is Step.TAKE:
                self._agreement.doubt([TOPIC], sent=False)
                self.near.publish(theirs, frozenset([self]), self)
            if do is not Step.SEND:
                self._agreement.note(TOPIC, theirs)
        self.reads = False
        self.doubts.ended(50)


@pytest.mark.parametrize("down", [False, True], ids=["up", "up and down"])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_ring_in_which_all_change_a_topic_at_once_ends_equal(size: int, down: bool) -> None:
    for seed in range(20):
        clock, random = Clock(), Random(seed)
        nodes = [Node() for _ in range(size)]
        bridges = [
            Bridge(clock, random, node, nodes[(at + 1) % size], down)
            for at, node in enumerate(nodes)
        ]
        changes = [(node, b"%d" % at) for at, node in enumerate(nodes)]
        changes += [(node, b"%d again" % at) for at, node in enumerate(nodes) if seed % 2]
        for node, state in changes:
            clock.later(
                random.uniform(0, 0.05),
                lambda node=node, state=state: node.publish(state, frozenset()),  # type: ignore[misc]
            )
        until = 60
        clock.run(until)
        assert len({node.state for node in nodes}) == 1, seed
        assert not any(bridge.doubts.topics or bridge.reads for bridge in bridges), seed


def test_crossings_tell_collisions_about_retained_messages_alone() -> None:
    found: list[str] = []
    doubts = Collisions(lambda: 0.0, lambda: found.append("told"))
    crossings = Crossings(lambda topic, state: None, lambda topics, sent: None, {}, doubts)
    for retain in (False, True):
        assert not doubts.topics
        crossings.leaves(Publish("a", b"1", 1, 1, retain))
        crossings.arrives(Publish("a", b"2", 1, 1, retain))
        crossings.leaves(Publish("same", b"1", 1, 2, retain))
        crossings.arrives(Publish("same", b"1", 0, 0, retain))
        crossings.returns("back", Publish("p/back", b"3", 1, 1, retain))
    crossings.begin_reading()
    assert crossings.doubted == ["a", "back"]
    assert not doubts.topics
    assert found == ["told"]
