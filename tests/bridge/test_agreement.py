"""The rules for retained messages that two brokers hold, by a model of both ends."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.bridge.agreement import Agreement, Digest, Step, digest, step

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
    assert agreement.marked(agreement.begin_mark()) == {"a": A, "b": A}
    assert len(agreement) == 2
    agreement.note("a", None)
    agreement.note("c", A)
    agreement.marked(agreement.begin_mark())
    assert set(agreement.topics()) == {"b", "c"}


class Ends:
    """Both brokers and the bridge. Each topic has an oracle of its own: which end changed since a
    mark covered it. A topic of `up` begins with u.
    """

    def __init__(self) -> None:
        self.ours: dict[str, str] = {}
        self.theirs: dict[str, str] = {}
        self.there_number: int | None = None
        self.saved: tuple[dict[str, str], int | None, bool] = ({}, None, False)
        self.session = False
        self.linked = False
        self.agreement = Agreement(1000, {}, 0)
        self.disk: tuple[dict[str, bytes], int] = ({}, 0)
        self.agreed: dict[str, str | None] = {}
        """The oracle: states that both ends had, and that a mark covers."""
        self.crossed: dict[str, str | None] = {}
        """States that both ends have had since the last mark."""
        self.lost = False
        """Whether the other broker has lost its session or messages in the meantime."""

    def change(self, here: bool, topic: str, text: str) -> None:
        _put(self.ours if here else self.theirs, topic, text)
        if self.linked and here == topic.startswith("u"):  # crosses at once, and is acknowledged
            _put(self.theirs if here else self.ours, topic, text)
            self.agreement.note(topic, digest(text.encode()))
            self.crossed[topic] = text or None

    def mark(self) -> None:
        if self.linked and self.agreement.has_fresh:
            number = self.agreement.begin_mark()
            self.there_number = number
            self.agreed |= self.crossed
            self.crossed.clear()
            self._keep(number)

    def _keep(self, number: int) -> None:
        self.agreement.marked(number)
        held = {
            topic: self.agreement.agreed(topic, known=True) for topic in self.agreement.topics()
        }
        self.disk = {topic: state for topic, state in held.items() if state is not None}, number

    def cut(self) -> None:
        self.linked = False

    def restart(self) -> None:
        """A power cut of the gateway."""
        self.linked = False
        held, number = self.disk
        self.agreement = Agreement(1000, dict(held), number)

    def save(self) -> None:
        self.saved = dict(self.theirs), self.there_number, self.session

    def roll_back(self) -> None:
        """The other broker dies, and comes back with its last saved state."""
        state, number, self.session = self.saved
        self.lost |= number != self.there_number or not self.session
        self.linked, self.theirs, self.there_number = False, dict(state), number

    def lose(self) -> None:
        self.saved = {}, None, False
        self.roll_back()
        self.lost = True

    def connect(self) -> None:
        if self.linked:
            return
        agreement = self.agreement
        agreement.cut()
        self.crossed.clear()
        known = self.session and agreement.knows(self.there_number)
        assert known <= (not self.lost), "lost messages are noticed"
        before = {*self.ours, *self.theirs}
        wanted = {topic: self._wanted(topic, known) for topic in {*before, *self.agreed}}
        if not known:
            agreement.void()
        for topic in {*before, *agreement.topics()}:
            ours, theirs = self._digest(self.ours, topic), self._digest(self.theirs, topic)
            agreed = agreement.agreed(topic, known=known)
            do = step(ours, theirs, agreed, up=topic.startswith("u"))
            if do is Step.SEND:
                _put(self.theirs, topic, self.ours.get(topic, ""))
            elif do is Step.TAKE:
                _put(self.ours, topic, self.theirs.get(topic, ""))
            agreement.note(topic, self._digest(self.ours, topic))
        assert self.ours == self.theirs
        for topic, text in wanted.items():
            assert self.ours.get(topic) == text, topic
        if not known:
            assert set(self.ours) == before, "nothing is taken away"
        number = agreement.begin_mark(self.there_number or 0)
        self.session = self.linked = True
        self.there_number, self.lost = number, False
        self.agreed = dict(self.ours)
        self._keep(number)

    def _wanted(self, topic: str, known: bool) -> str | None:
        """Return the state that both ends shall have."""
        ours, theirs = self.ours.get(topic), self.theirs.get(topic)
        if not known:
            first, second = (ours, theirs) if topic.startswith("u") else (theirs, ours)
            return second if first is None else first
        agreed = self.agreed.get(topic)
        if agreed is None and None in (ours, theirs):
            return theirs if ours is None else ours
        if ours == agreed:
            return theirs
        if theirs == agreed:
            return ours
        return ours if topic.startswith("u") else theirs

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
)
_OTHERS = st.sampled_from(["mark", "cut", "restart", "save", "roll_back", "lose", "connect"])
_SCHEDULES = st.lists(_CHANGES | st.tuples(_OTHERS) | st.just(("connect",)), max_size=40)


def _run(schedule: list[tuple[object, ...]]) -> None:
    ends = Ends()
    for name, *values in schedule:
        call: Callable[..., None] = getattr(ends, str(name))
        call(*values)
    ends.cut()
    ends.connect()


@settings(max_examples=MANY, deadline=None)
@example([("connect",), ("save",), ("change", True, "u1", "a"), ("mark",), ("roll_back",)])
@example([("change", True, "u1", "a"), ("connect",), ("change", False, "u1", ""), ("lose",)])
@given(_SCHEDULES)
def test_both_ends_converge(schedule: list[tuple[object, ...]]) -> None:
    _run(schedule)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None)
@given(_SCHEDULES)
def test_both_ends_converge_in_ten_thousand_schedules(schedule: list[tuple[object, ...]]) -> None:
    _run(schedule)


def test_change_back_after_a_cut_is_not_undone() -> None:
    """Both agreed on A. B crossed without a mark, and the connection was lost. A came again."""
    old, new = digest(b"A"), digest(b"B")
    for crossed in (new, None):
        agreement = Agreement(10, {"t": old or b""}, 1)
        agreement.note("t", crossed)
        agreement.cut()
        agreed = agreement.agreed("t", known=True)
        assert step(old, crossed, agreed, up=True) is Step.SEND
