"""The keeper of other members' copies, without I/O: its bounds, and a member that breaks all
rules.
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.replication.messages import (
    MOST_ID,
    Held,
    Message,
    Row,
    Rows,
    Told,
    decode,
    encode,
    portions,
    row_bytes,
)
from gateway.site.replication.receiving import MOST_LINES, MOST_OWED, Keeping, Order

LINE = "0123456789abcdef"
SILENT_S = 600.0


def told(line: str = LINE, first: int = 1, *, keep: bool = True, name: str = "a") -> Told:
    return Told(line=line, keep=keep, first=first, name=name, epochs=((0, 7),), boot=1, clock=None)


def row(number: int, payload: bytes = b"m", device: str | None = "d") -> Row:
    return (
        number,
        device,
        None if device is None else 7,
        number,
        "client",
        "t/ö",
        payload,
        1,
        number,
        None if number % 2 else 1_000,
    )


class Shelf:
    """A shelf whose writes end only when the test calls `work`."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self._done: deque[Callable[[], None]] = deque()

    def write(self, order: Order, done: Callable[[], None]) -> None:
        self.orders.append(order)
        self._done.append(done)

    def work(self) -> None:
        while self._done:
            self._done.popleft()()

    @property
    def rows(self) -> list[int]:
        return [row[0] for order in self.orders for _, row in order.rows]


class Kept:
    """A keeper of copies, with a record of all messages that it has sent."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.shelf = Shelf()
        self.said: list[tuple[str, Message]] = []
        self.room = True
        self.keeping = Keeping(
            [], self.shelf, self._send, lambda size: self.room, most, SILENT_S, 0.0
        )
        self.say = partial(self.keeping.received, "a")

    def _send(self, member: str, frame: bytes) -> None:
        self.said.append((member, decode(frame)))


def test_a_frame_is_read_as_it_was_written() -> None:
    for message in (
        told(),
        Held(LINE, 9),
        Rows(LINE, [row(1), row(2, bytes(300)), row(3, b"", None)]),
    ):
        assert decode(encode(message)) == message


def test_rows_are_split_so_that_each_part_fits_into_a_frame() -> None:
    rows = [row(1, bytes(900_000)), *(row(number, bytes(1000)) for number in range(2, 2000))]
    parts = list(portions(rows))
    assert [item for part in parts for item in part] == rows
    for part in parts:
        frame = encode(Rows(LINE, part))
        assert len(frame) <= FRAME_BYTES
        assert sum(map(row_bytes, part)) == len(frame) - 9
    assert len(parts) < 12


@pytest.mark.parametrize("seed", range(4))
def test_other_bytes_are_not_read_as_a_frame(seed: int) -> None:
    """The decoder returns one message for any bytes of a member, or raises SiteError."""
    draw = random.Random(seed)
    whole = [encode(told()), encode(Held(LINE, 3)), encode(Rows(LINE, [row(1), row(2)]))]
    for _ in range(3000):
        frame = bytearray(draw.choice(whole))
        for _ in range(draw.randint(1, 4)):
            frame[draw.randrange(len(frame))] = draw.randrange(256)
        del frame[draw.randint(1, 2 * len(frame)) :]
        try:
            message = decode(bytes(frame))
        except SiteError:
            continue
        if isinstance(message, Rows):
            numbers = [found[0] for found in message.rows]
            assert numbers == sorted(set(numbers))
            assert all(number < MOST_ID for number in numbers)


def test_rows_during_a_commit_are_confirmed_by_the_next_one() -> None:
    kept = Kept()
    kept.say(told())
    for number in range(1, 11):
        kept.say(Rows(LINE, [row(number)]))
    kept.shelf.work()
    assert [held for _, held in kept.said] == [Held(LINE, 0), Held(LINE, 10)]
    assert len(kept.shelf.orders) == 2
    assert kept.shelf.rows == list(range(1, 11))


def test_a_row_that_comes_again_is_written_once() -> None:
    kept = Kept()
    kept.say(told())
    kept.say(Rows(LINE, [row(1), row(2)]))
    kept.say(Rows(LINE, [row(2), row(3)]))
    kept.shelf.work()
    assert kept.shelf.rows == [1, 2, 3]


def test_rows_of_an_unknown_line_end_the_link() -> None:
    kept = Kept()
    with pytest.raises(SiteError):
        kept.say(Rows(LINE, [row(1)]))
    kept.say(told())
    with pytest.raises(SiteError):
        kept.say(Rows("f" * 16, [row(1)]))


def test_a_member_that_sends_more_than_it_may_loses_its_link() -> None:
    kept = Kept()
    kept.say(told())
    with pytest.raises(SiteError):  # noqa: PT012 - one of them does
        for number in range(1, 2 * MOST_OWED // 100_000):
            kept.say(Rows(LINE, [row(number, bytes(100_000))]))
    assert sum(len(item[6]) for order in kept.shelf.orders for _, item in order.rows) <= MOST_OWED


@pytest.mark.parametrize("why", ["its link has ended", "it has chosen another one"])
def test_rows_without_room_are_dropped_when_they_will_be_sent_again(why: str) -> None:
    """A correct member sends all unconfirmed rows again, so its link stays."""
    kept = Kept()
    kept.room = False
    size = FRAME_BYTES - 1000
    for _ in range(3 * MOST_OWED // FRAME_BYTES):
        if why == "its link has ended":
            kept.keeping.link_ended("a", 0.0)
            kept.keeping.joined("a", 0.0)
        else:
            kept.say(told(keep=False))
        kept.say(told())
        kept.shelf.work()
        kept.say(Rows(LINE, [row(1, bytes(size))]))
    kept.room = True
    kept.keeping.advance()
    kept.shelf.work()
    assert kept.said[-1] == ("a", Held(LINE, 1))


def test_member_that_restarts_its_spool_all_the_time_loses_its_link() -> None:
    kept = Kept()
    for number in range(MOST_LINES):
        kept.say(told(f"{number:016x}"))
    with pytest.raises(SiteError):
        kept.say(told("f" * 16))


def test_a_line_that_is_over_and_empty_is_forgotten() -> None:
    kept = Kept()
    for number in range(3 * MOST_LINES):
        kept.say(told(f"{number:016x}"))
        kept.shelf.work()
        kept.keeping.advance()
        kept.shelf.work()
    assert sum(len(order.forgotten) for order in kept.shelf.orders) == 3 * MOST_LINES - 1


@pytest.mark.parametrize("what", ["the bound", "the disk"])
def test_rows_without_room_are_not_confirmed(what: str) -> None:
    kept = Kept(most=1000)
    kept.say(told())
    kept.shelf.work()
    kept.room = what != "the disk"
    kept.say(Rows(LINE, [row(1, bytes(500))]))
    kept.say(Rows(LINE, [row(2, bytes(500))]))
    kept.shelf.work()
    assert kept.keeping.full
    assert kept.shelf.rows == ([1] if what == "the bound" else [])
    kept.room = True
    kept.say(told(first=2))
    kept.shelf.work()
    kept.keeping.advance()
    kept.shelf.work()
    assert kept.said[-1] == ("a", Held(LINE, 2))


def test_a_member_that_says_nothing_of_copies_is_silent_though_it_has_a_link() -> None:
    kept = Kept()
    kept.keeping.joined("a", 1.0)
    kept.say(told())
    kept.say(Rows(LINE, [row(1)]))
    kept.shelf.work()
    assert kept.keeping.due(SILENT_S * 2) is None, "it has told of its spool"
    kept.keeping.link_ended("a", 10.0)
    kept.keeping.joined("a", 20.0)  # the member now has copies = 1
    assert kept.keeping.due(SILENT_S) is None
    line = kept.keeping.due(SILENT_S + 21)
    assert line is not None
    kept.say(told())
    assert kept.keeping.due(SILENT_S + 21) is None, "it speaks again"


def test_ended_line_is_reported_to_no_member() -> None:
    kept = Kept()
    kept.say(told())
    kept.say(Rows(LINE, [row(1)]))
    kept.say(told("f" * 16))
    kept.shelf.work()
    assert {held.line for _, held in kept.said if isinstance(held, Held)} == {"f" * 16}
    line = kept.keeping.due(0.0)
    assert line is not None
    assert line.state.line == LINE
    kept.keeping.landed(line, 1)
    assert kept.keeping.due(0.0) is None


def test_landed_replicas_do_not_come_back() -> None:
    """The keeper has landed the copies. Then the member is back, and reports that fewer of its rows
    have landed.
    """
    kept = Kept()
    kept.say(told())
    kept.say(Rows(LINE, [row(1), row(2)]))
    kept.shelf.work()
    kept.keeping.link_ended("a", 0.0)
    line = kept.keeping.due(SILENT_S + 1)
    assert line is not None
    kept.keeping.landed(line, 2)
    kept.say(told(first=1))
    kept.shelf.work()
    assert kept.said[-1] == ("a", Held(LINE, 2))
    assert kept.keeping.due(1e9) is None
