"""The comparison of retained messages at both ends of a bridge, against a model of both brokers."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.bridge.agreement import Agreement, Digest, Step, digest, digest_of, step, step_in_doubt
from gateway.bridge.translate import MARK
from gateway.broker.retained import Retained
from gateway.mqtt.properties import Properties, PropertyId, pass_through

A, B, C = (digest(text) for text in (b"a", b"b", b"c"))
MANY = 300


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed", "up", "down"),
    [
        (None, None, None, Step.NOTHING, Step.NOTHING),
        (None, None, A, Step.NOTHING, Step.NOTHING),
        (A, A, None, Step.NOTHING, Step.NOTHING),
        (A, A, B, Step.NOTHING, Step.NOTHING),
        (A, None, None, Step.SEND, Step.SEND),
        (None, A, None, Step.TAKE, Step.TAKE),
        (A, B, None, Step.SEND, Step.TAKE),
        (B, A, A, Step.SEND, Step.SEND),
        (A, B, A, Step.TAKE, Step.TAKE),
        (None, A, A, Step.SEND, Step.SEND),
        (A, None, A, Step.TAKE, Step.TAKE),
        (B, C, A, Step.SEND, Step.TAKE),
        (None, C, A, Step.SEND, Step.TAKE),
        (B, None, A, Step.SEND, Step.TAKE),
    ],
)
def test_each_case_of_the_comparison(
    ours: Digest, theirs: Digest, agreed: Digest, up: Step, down: Step
) -> None:
    assert step(ours, theirs, agreed, up=True) is up
    assert step(ours, theirs, agreed, up=False) is down


def test_without_an_agreement_nothing_is_deleted() -> None:
    for up in (True, False):
        assert step(A, None, None, up=up) is Step.SEND
        assert step(None, A, None, up=up) is Step.TAKE


def test_agreements_are_bounded() -> None:
    agreement = Agreement(2, {}, 0)
    for topic in "abc":
        agreement.note(topic, A)
    assert agreement.confirm_mark(agreement.begin_mark()) == {"a": A, "b": A}
    assert len(agreement) == 2
    agreement.note("a", None)
    agreement.note("c", A)
    agreement.confirm_mark(agreement.begin_mark())
    assert set(agreement.topics()) == {"b", "c"}


class Killed(Exception):
    """Raised to end a comparison, as if the gateway were killed."""


class Ends:
    """A model of both brokers, of the bridge, and of the bridge's state on disk. For each topic,
    the model knows which end has changed since both ends were equal. A topic of `up` begins with u.
    """

    def __init__(self) -> None:
        self.ours: dict[str, str] = {}
        self.theirs: dict[str, str] = {}
        self.there_number: int | None = None
        self.session = False
        self.saved: tuple[dict[str, str], int | None, bool] = ({}, None, False)
        self.linked = False
        self.agreement = Agreement(1000, {}, 0)
        self.held: dict[str, bytes] = {}
        self.doubted: dict[str, bool] = {}
        self.number = 0
        """Number of the newest mark. The model counts it as stored on disk, like `held` and
        `doubted`.
        """
        self.base: dict[str, str] = {}
        """State of each topic when it was last equal at both ends."""
        self.unsure: set[str] = set()
        """Topics for which the bridge cannot know which end has the newer state."""
        self.unmarked: set[str] = set()
        """Topics whose message changed at one end, or crossed the bridge, after the newest mark."""
        self.lost = False
        """Whether the other broker has lost its session, or messages that are older than the newest
        mark.
        """

    # -- events

    def change(self, here: bool, topic: str, text: str, vanishes: bool) -> None:
        """Change a topic at one end. vanishes: the message is lost, because the connection is dead,
        although neither end has noticed the loss of the connection.
        """
        _put(self.ours if here else self.theirs, topic, text)
        if not self.linked or here != topic.startswith("u"):
            return
        if here:
            self._doubt(topic, True)
        if vanishes:
            self.unsure |= {topic} if here else set()
        else:
            self._doubt(topic, here)
            _put(self.theirs if here else self.ours, topic, text)
            self._same(topic)

    def mark(self, killed: bool = False) -> None:
        if self.linked and self.agreement.has_fresh:
            number = self.there_number = self.agreement.begin_mark()
            if killed:
                self.kill()
            else:
                self._write(number)

    def cut(self) -> None:
        self.linked = False

    def kill(self) -> None:
        self.linked = False
        self.unsure |= self.unmarked
        self.agreement = Agreement(1000, dict(self.held), self.number, dict(self.doubted))

    def off_and_on(self) -> None:
        """Let the gateway run with `retained = false` for a while. Meanwhile, topics change."""
        self.kill()
        self.held, self.doubted = {}, {}
        self.unsure |= {*self.ours, *self.theirs}
        self.agreement = Agreement(1000, {}, self.number)

    def save(self) -> None:
        self.saved = dict(self.theirs), self.there_number, self.session

    def roll_back(self) -> None:
        """Kill the other broker, and start it with the state that it saved last."""
        state, number, self.session = self.saved
        self.lost |= (number or 0) < self.number or not self.session
        self.unsure |= {t for t in {*state, *self.theirs} if state.get(t) != self.theirs.get(t)}
        self.linked, self.theirs, self.there_number = False, dict(state), number

    def lose(self) -> None:
        self.saved = {}, None, False
        self.roll_back()
        self.lost = True

    def connect(self, dies: int = -1) -> None:
        """Connect and compare both ends. dies: number of the step before which the gateway is
        killed; -1: it is not killed.
        """
        if not self.linked:
            try:
                self._compare(dies)
            except Killed:
                self.kill()

    # -- the comparison, in the same order as in `converge.py`

    def _compare(self, dies: int) -> None:
        agreement = self.agreement
        known = self.session and agreement.knows(self.there_number)
        assert known <= (not self.lost), "lost messages are noticed"
        before = {*self.ours, *self.theirs}
        topics = sorted({*before, *agreement.topics()})
        wanted = {topic: self._wanted(topic, known) for topic in topics}
        if not known:
            self.held, self.doubted = {}, {}
            agreement.void()
        left = iter(range(dies, -1, -1)) if dies >= 0 else None
        self.lost, self.session = False, True
        for topic in topics:
            if left is not None and next(left, None) is None:
                raise Killed
            ours, theirs = self._digest(self.ours, topic), self._digest(self.theirs, topic)
            do = agreement.step(topic, ours, theirs, known=known, up=topic.startswith("u"))
            if do is not Step.NOTHING or agreement.differs(topic, ours):
                self._doubt(topic, do is not Step.TAKE)
                state = (self.theirs if do is Step.TAKE else self.ours).get(topic, "")
                _put(self.theirs, topic, state)
                _put(self.ours, topic, state)
                self._same(topic)
            else:
                self._equal(topic)
            assert (self.ours.get(topic) or "") in wanted[topic], topic
        assert self.ours == self.theirs
        if not known:
            assert set(self.ours) == before, "nothing is taken away"
        self.linked = True
        number = self.there_number = agreement.begin_mark(self.there_number or 0)
        if left is not None:
            raise Killed
        self._write(number)

    def _doubt(self, topic: str, sent: bool) -> None:
        self.unmarked.add(topic)
        for found in self.agreement.doubt([topic], sent=sent):
            self.doubted[found] = sent

    def _same(self, topic: str) -> None:
        self.agreement.note(topic, self._digest(self.ours, topic))
        self._equal(topic)

    def _equal(self, topic: str) -> None:
        _put(self.base, topic, self.ours.get(topic, ""))
        self.unsure.discard(topic)

    def _write(self, number: int) -> None:
        for topic, state in self.agreement.confirm_mark(number).items():
            self.held.pop(topic, None)
            self.doubted.pop(topic, None)
            self.unmarked.discard(topic)
            if state is not None:
                self.held[topic] = state
        self.number = number

    def _wanted(self, topic: str, known: bool) -> set[str]:
        """Return the states of a topic that are right at both ends after a comparison. An empty
        text stands for no message.
        """
        ours, theirs = self.ours.get(topic, ""), self.theirs.get(topic, "")
        first, second = (ours, theirs) if topic.startswith("u") else (theirs, ours)
        if not known:
            return {first or second}
        went_back = self.held.get(topic) == self._digest(self.theirs, topic)
        if topic in self.unsure or (topic in self.unmarked and went_back):
            return {ours, theirs}  # the other broker may have lost the newer state
        if theirs == self.base.get(topic, ""):
            return {ours}
        if ours == self.base.get(topic, ""):
            return {theirs}
        return {first} if topic in self.held else {first, first or second}

    @staticmethod
    def _digest(side: dict[str, str], topic: str) -> Digest:
        return digest(side.get(topic, "").encode())


def _put(side: dict[str, str], topic: str, text: str) -> None:
    if text:
        side[topic] = text
    else:
        side.pop(topic, None)


_CHANGES = st.tuples(
    st.just("change"),
    st.booleans(),
    st.sampled_from(["u1", "u2", "d1", "d2"]),
    st.sampled_from(["", "a", "b", "c"]),
    st.booleans(),
)
_OTHERS = st.sampled_from(["cut", "kill", "save", "roll_back", "lose", "off_and_on"])
_OFTEN = st.sampled_from(["mark", "connect"])
_KILLED = st.tuples(st.just("mark"), st.booleans()) | st.tuples(
    st.just("connect"), st.integers(-1, 6)
)
_SCHEDULES = st.lists(
    _CHANGES | st.tuples(_OTHERS) | st.tuples(_OFTEN) | _KILLED | _CHANGES, max_size=40
)


def _run(schedule: list[tuple[object, ...]]) -> None:
    ends = Ends()
    for name, *values in schedule:
        call: Callable[..., None] = getattr(ends, str(name))
        call(*values)
    ends.cut()
    ends.connect()


@settings(max_examples=MANY, deadline=None)
@example([("connect",), ("save",), ("change", True, "u1", "a", False), ("mark",), ("roll_back",)])
@example([("change", True, "u1", "a", False), ("connect",), ("change", False, "u1", "", False)])
@given(_SCHEDULES)
def test_both_ends_converge(schedule: list[tuple[object, ...]]) -> None:
    _run(schedule)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None)
@given(_SCHEDULES)
def test_both_ends_converge_in_ten_thousand_schedules(schedule: list[tuple[object, ...]]) -> None:
    _run(schedule)


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("killed", [False, True], ids=["cut", "kill"])
def test_change_back_after_a_cut_is_not_undone(killed: bool, here: bool) -> None:
    """Both ends have A. One end sends B, and the connection is lost before the next mark. Then the
    same end sets A again.
    """
    topic = "u" if here else "d"
    for new in ("b", ""):
        ends = Ends()
        ends.change(here, topic, "a", False)
        ends.connect()
        ends.change(here, topic, new, False)
        if killed:
            ends.kill()
        else:
            ends.cut()
        ends.change(here, topic, "a", False)
        ends.connect()
        assert ends.ours == ends.theirs == {topic: "a"}


@pytest.mark.parametrize("killed", [False, True], ids=["cut", "kill"])
@pytest.mark.parametrize("text", ["", "b"])
def test_message_into_a_dead_connection_is_sent_again(text: str, killed: bool) -> None:
    ends = Ends()
    ends.change(True, "u", "a", False)
    ends.connect()
    ends.change(True, "u", text, True)
    if killed:
        ends.kill()
    ends.cut()
    ends.connect()
    assert ends.ours == ends.theirs == ({"u": text} if text else {})


def test_death_between_a_new_mark_and_its_agreements_deletes_nothing() -> None:
    ends = Ends()
    ends.change(True, "u", "a", False)
    ends.connect()
    ends.lose()
    ends.change(False, "d", "b", False)
    ends.connect(dies=2)
    ends.change(False, "u", "", False)
    ends.connect()
    assert ends.ours == ends.theirs == {"u": "a", "d": "b"}


def test_deletion_in_doubt_wins_over_the_old_state_alone() -> None:
    for sent in (True, False):
        mine, other = (Step.SEND, Step.TAKE) if sent else (Step.TAKE, Step.SEND)
        gone, kept = (None, A) if sent else (A, None)
        assert step_in_doubt(gone, kept, A, up=sent, sent=sent) is mine
        assert step_in_doubt(gone, kept, B, up=sent, sent=sent) is other
        assert step_in_doubt(gone, kept, None, up=not sent, sent=sent) is other


def test_properties_are_compared_without_marks_and_expiry() -> None:
    plain: Properties = {PropertyId.CONTENT_TYPE: "text/plain"}
    user = [("k", "v"), (MARK, "a/b/1")]
    crossed = plain | {PropertyId.USER_PROPERTY: user, PropertyId.MESSAGE_EXPIRY_INTERVAL: 9}
    held = Retained("t", "c", 0, b"a", pass_through(crossed))
    assert digest_of(held) == digest(b"a", crossed)
    assert digest(b"a", crossed) != digest(b"a", plain)
    marked = plain | {PropertyId.USER_PROPERTY: user[1:]}
    assert digest(b"a", marked) == digest(b"a", plain) != digest(b"a")
    assert digest_of(None) is digest(b"", plain) is None
