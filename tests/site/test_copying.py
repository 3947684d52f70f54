"""The sender of replicas, without I/O: rows that members confirm, and a faulty member."""

from collections.abc import Callable, Sequence

import pytest

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.replication.messages import Held, Message, Row, Rows, Told, decode
from gateway.site.replication.sending import WAIT_S, Copying

LINE, NEXT_LINE = "0" * 16, "1" * 16


def told(line: str = LINE) -> Told:
    return Told(line=line, keep=False, first=1, name="a", epochs=((0, 7),), boot=1, clock=None)


def row(number: int, payload: bytes = b"m") -> Row:
    return (number, "d", 7, number, "client", "t", payload, 1, number, None)


class Owner:
    """A spool with `rows` rows, and the `Copying` that replicates it."""

    def __init__(self, rows: int = 0) -> None:
        self.rows = [row(number) for number in range(1, rows + 1)]
        self.safe_to = 0
        self.lines = 0
        self.slow = False
        """Whether reads of the disk are not answered."""
        self.said: list[tuple[str, Message]] = []
        self.copying = Copying(self, self.send, told(), rows, 0.0)

    def send(self, to: str, frame: bytes) -> None:
        assert len(frame) <= FRAME_BYTES
        self.said.append((to, decode(frame)))

    def commit(self, *numbers: int) -> None:
        new = [row(number) for number in numbers]
        self.rows += new
        self.copying.committed(new, 0.0)

    def hear(self, member: str, last: int, line: str = LINE) -> None:
        self.copying.received(member, Held(line, last), 0.0)

    def sent_to(self, member: str) -> list[int]:
        return [
            found[0]
            for to, message in self.said
            if to == member and isinstance(message, Rows)
            for found in message.rows
        ]

    def read(self, after: int, before: int, done: Callable[[Sequence[Row], bool], None]) -> None:
        if not self.slow:
            done([found for found in self.rows if after < found[0] < before], True)

    def safe(self, row: int) -> None:
        self.safe_to = row

    def refuse(self, refuses: bool) -> None:
        pass

    def send_away(self) -> None:
        pass

    def begin_line(self, done: Callable[[Told], None]) -> None:
        self.lines += 1
        done(told(NEXT_LINE))


def test_member_that_confirms_unsent_rows_loses_its_link() -> None:
    owner = Owner()
    owner.copying.joined("b", 0.0)
    owner.hear("b", 0)
    owner.commit(1)
    with pytest.raises(SiteError):
        owner.hear("b", 2)
    assert (owner.safe_to, owner.lines) == (0, 0)


def test_spool_starts_over_once_for_reports_of_members() -> None:
    """A faulty member always reports more rows than the spool has."""
    owner = Owner(rows=3)
    owner.copying.joined("b", 0.0)
    owner.hear("b", 1000)
    with pytest.raises(SiteError):
        owner.hear("b", 1000, NEXT_LINE)
    assert owner.lines == 1


def test_rows_that_come_before_a_member_is_heard_are_not_those_that_it_has() -> None:
    """The spool's disk has lost rows 4 to 6 and has given their ids to other rows. The member still
    has the lost rows.
    """
    owner = Owner(rows=3)
    owner.commit(4, 5, 6, 7)
    owner.copying.joined("b", 0.0)
    owner.hear("b", 6)
    assert (owner.safe_to, owner.lines) == (0, 1)
    owner.hear("b", 0, NEXT_LINE)
    assert owner.sent_to("b") == [1, 2, 3, 4, 5, 6, 7]


def test_late_confirmation_counts_when_the_member_is_chosen_again() -> None:
    owner = Owner()
    owner.copying.joined("b", 0.0)
    owner.copying.joined("c", 0.0)
    owner.hear("b", 0)
    owner.commit(1)
    owner.commit(2)
    owner.copying.advance(WAIT_S + 1)
    assert owner.copying.holder == "c"
    owner.copying.advance(2 * WAIT_S + 2)
    assert owner.copying.holder == "b"
    owner.slow = True
    owner.hear("b", 1)
    owner.hear("b", 2)
    assert owner.safe_to == 2


def test_oversized_old_row_stops_no_member() -> None:
    """Older versions allowed larger publications. A row that is larger than a frame is not sent to
    the keeper.
    """
    owner = Owner(rows=3)
    owner.rows[1] = row(2, bytes(FRAME_BYTES))
    owner.copying.joined("b", 0.0)
    owner.hear("b", 0)
    assert owner.sent_to("b") == [1, 3]
    owner.hear("b", 3)
    assert owner.safe_to == 3
