"""Filters and packets between two members, without a broker. A member may be faulty."""

from collections import deque
from collections.abc import Callable, Iterable

import pytest

from gateway.site.errors import SiteError
from gateway.site.forwarding import forwarding as forwarding
from gateway.site.forwarding.forwarding import AGAIN_S, WINDOW_BYTES, MemberForwarding
from gateway.site.forwarding.messages import (
    FILTERS_PER_FRAME,
    FIRST,
    GONE,
    PIECE_BYTES,
    Hello,
    Packets,
    Taken,
    WantedFilter,
    WantedFilters,
    decode,
    encode,
    portions,
)


class Side:
    """One member (a `Port`), with a record of received messages and sent frames."""

    def __init__(self, queue: int) -> None:
        self.queue = queue
        self.frames: deque[bytes] = deque()
        self.timers: list[Callable[[], None]] = []
        self.opened: list[int] = []
        self.is_open = False
        self.came = b""
        self.filters: dict[str, int] = {}
        self.works = True
        self.drains = 0
        self.forwarding = MemberForwarding(self, 1000, (), self.frames.append, self._later)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        assert seconds == AGAIN_S
        self.timers.append(call)

    def open(self, queue: int, packet_bytes: int) -> None:
        assert not self.is_open
        assert packet_bytes == 1000
        self.opened.append(queue)
        self.is_open = True

    def shut(self) -> None:
        self.is_open = False

    def take(self, latest: int, data: bytes) -> None:
        assert self.is_open
        self.came += data
        if self.works:
            self.forwarding.processed(len(data))

    def drained(self) -> None:
        self.drains += 1

    def change_filters(self, filters: Iterable[WantedFilter]) -> None:
        for topic_filter, qos in filters:
            if qos == GONE:
                del self.filters[topic_filter]
            else:
                self.filters[topic_filter] = qos

    def end(self) -> None:
        """End the exchange, as the member's broker does."""
        self.is_open = False
        self.forwarding.ended()

    def ring(self) -> None:
        timers, self.timers = self.timers, []
        for call in timers:
            call()


class Pair:
    def __init__(self) -> None:
        self.a, self.b = Side(1), Side(2)

    def join(self, *filters: WantedFilter) -> None:
        self.a.forwarding.joined(filters)
        self.b.forwarding.joined(())
        self.settle()

    def settle(self) -> None:
        while self.a.frames or self.b.frames:
            for side, other in ((self.a, self.b), (self.b, self.a)):
                if side.frames:
                    other.forwarding.received(side.frames.popleft())


@pytest.fixture
def pair() -> Pair:
    found = Pair()
    found.join()
    return found


def test_packets_flow_when_both_have_greeted(pair: Pair) -> None:
    assert (pair.a.opened, pair.b.opened) == ([2], [1])
    pair.a.forwarding.sent(1, b"x" * 3 * PIECE_BYTES)
    pair.settle()
    assert pair.b.came == b"x" * 3 * PIECE_BYTES


def test_member_that_processes_nothing_gets_one_window(pair: Pair) -> None:
    pair.b.works = False
    pair.a.forwarding.sent(1, b"x" * 3 * WINDOW_BYTES)
    pair.settle()
    assert len(pair.b.came) == WINDOW_BYTES
    assert pair.a.forwarding.waiting == 2 * WINDOW_BYTES
    pair.b.works = True
    pair.b.forwarding.processed(WINDOW_BYTES)
    pair.settle()
    assert len(pair.b.came) == 3 * WINDOW_BYTES
    assert pair.a.drains


@pytest.mark.parametrize("both", [False, True])
def test_a_side_that_ends_begins_again_a_little_later(pair: Pair, both: bool) -> None:
    pair.a.end()
    if both:
        pair.b.end()
    else:
        pair.b.forwarding.sent(1, b"lost")
    pair.settle()
    assert not pair.a.is_open
    pair.a.ring()
    pair.b.ring()
    pair.settle()
    assert pair.a.is_open
    assert pair.b.is_open
    pair.b.forwarding.sent(1, b"new")
    pair.settle()
    assert pair.a.came == b"new", "what was sent to the side that had ended is not taken"


def test_a_link_that_is_cut_begins_again(pair: Pair) -> None:
    for side in (pair.a, pair.b):
        side.forwarding.link_ended()
        assert not side.is_open
    pair.join()
    assert (pair.a.opened, pair.b.opened) == ([2, 2], [1, 1])


def test_filters_that_have_gone_meanwhile_are_forgotten(pair: Pair) -> None:
    pair.a.forwarding.change_filters([WantedFilter("kept", 1), WantedFilter("gone", 2)])
    pair.settle()
    assert pair.b.filters == {"kept": 1, "gone": 2}
    pair.a.forwarding.link_ended()
    pair.b.forwarding.link_ended()
    pair.join(WantedFilter("kept", 2), WantedFilter("new", 0))
    assert pair.b.filters == {"kept": 2, "new": 0}


def test_many_filters_go_in_frames_within_bounds() -> None:
    filters = [WantedFilter(f"{number}/" + "x" * 100, 1) for number in range(3 * FILTERS_PER_FRAME)]
    frames = [encode(WantedFilters(False, False, part)) for part in portions(filters)]
    told: list[WantedFilter] = []
    for frame in frames:
        message = decode(frame)
        assert isinstance(message, WantedFilters)
        told += message.filters
    assert told == filters
    assert max(map(len, frames)) < 1 << 20


def test_messages_survive_encoding_and_decoding() -> None:
    for message in (
        Hello(1, 2, 3, 4),
        Packets(5, 6, b"data"),
        Taken(7, 8),
        WantedFilters(True, False, ()),
    ):
        assert decode(encode(message)) == message


NONSENSE = {
    "empty": b"",
    "unknown kind": bytes([FIRST + 9]),
    "half a greeting": encode(Hello(1, 2, 3, 4))[:-1],
    "a greeting of no round": encode(Hello(0, 2, 3, 4)),
    "no queue": encode(Hello(1, 2, 0, 4)),
    "a long greeting": encode(Hello(1, 2, 3, 4)) + b"x",
    "too many packets": encode(Packets(1, 1, b"x" * (PIECE_BYTES + 1))),
    "a number that cannot be": encode(Packets(1, 1 << 62, b"")),
    "half a number": encode(Packets(1, 1, b""))[:-1],
    "a filter that ends too early": encode(WantedFilters(True, True, (WantedFilter("abc", 1),)))[
        :-1
    ],
    "more behind": encode(WantedFilters(True, True, (WantedFilter("abc", 1),))) + b"x",
    "a QoS that cannot be": encode(WantedFilters(True, True, (WantedFilter("abc", 4),))),
    "no UTF-8": encode(WantedFilters(True, True, (WantedFilter("abc", 1),)))[:-1] + b"\xff",
    "fewer than it says": b"\x43\x00\xff\xff",
}


@pytest.mark.parametrize("frame", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_ends_the_link(pair: Pair, frame: bytes) -> None:
    with pytest.raises(SiteError):
        pair.b.forwarding.received(frame)


def test_a_member_that_sends_more_than_a_window_loses_its_link(pair: Pair) -> None:
    pair.b.works = False
    frame = encode(Packets(1, 1, b"x" * PIECE_BYTES))
    for _ in range(WINDOW_BYTES // PIECE_BYTES):
        pair.b.forwarding.received(frame)
    with pytest.raises(SiteError, match="more packets than allowed"):
        pair.b.forwarding.received(frame)


def test_member_that_confirms_unsent_messages_loses_its_link(pair: Pair) -> None:
    with pytest.raises(SiteError, match="confirms more packets"):
        pair.b.forwarding.received(encode(Taken(1, 1)))


def test_a_member_with_too_many_filters_loses_its_link(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "MOST_FILTERS", 10)
    pair.b.forwarding.received(
        encode(
            WantedFilters(True, False, tuple(WantedFilter(str(number), 1) for number in range(10)))
        )
    )
    with pytest.raises(SiteError, match="more than 10 filters"):
        pair.b.forwarding.received(
            encode(WantedFilters(False, False, (WantedFilter("one more", 1),)))
        )
