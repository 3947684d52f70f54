"""Replicas of other members' spools, kept here until they have landed. Sans-IO.

In: reports of members about their spools, rows, the time. Out: orders for the shelf, a separate
database; confirmations of the shelf's contents; and lines that are to be landed here. A *line* is a
series of rows of one member's spool (`Told`). This gateway lands a line in two cases:

- The member has not reported its spool for long: it has no link, or has stopped replication.
- The member has another line now: its store was restored or replaced, or has lost rows.

Rows are written in the sequence of their arrival, all waiting rows in one transaction (`Order`).
Rows for which there is no room wait in memory, at most MOST_OWED bytes for each member. Such rows
are dropped if the link ends or the member chooses another receiver.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.replication.messages import Held, Message, Row, Rows, Told, encode, row_bytes

MOST_OWED = 4 * FRAME_BYTES
"""Bound on the bytes of rows that one member has sent and that are not on disk here yet. Exceeding
it is a SiteError.
"""
PART = 512
"""Number of consecutive row ids whose row sizes are added up as one part."""
MOST_LINES = 8
"""Largest number of lines (series of spool rows, see `Line`) that are kept for one member. If a
member reports a further line, SiteError is raised.
"""


@dataclass(slots=True)
class Line:
    """A series of rows of one member's spool. number: the line's number on the shelf. state: the
    member's last report. last: id of the highest row received. parts: for each range of PART row
    ids, the id of the last row in the range, and the bytes of all rows in the range.
    """

    number: int
    member: str
    state: Told
    last: int
    parts: deque[tuple[int, int]] = field(default_factory=deque)
    size: int = 0

    def __post_init__(self) -> None:
        self.size = sum(size for _, size in self.parts)

    @property
    def first(self) -> int:
        """Id of the lowest row that is still needed."""
        return self.state.first

    def grow(self, row: int, size: int) -> None:
        self.size += size
        if self.parts and self.parts[-1][0] // PART == row // PART:
            size += self.parts.pop()[1]
        self.parts.append((row, size))

    def drop(self, first: int) -> None:
        """Drop all rows with ids below `first`."""
        self.state = self.state.model_copy(update={"first": first})
        while self.parts and self.parts[0][0] < first:
            self.size -= self.parts.popleft()[1]


@dataclass(slots=True)
class Order:
    """One transaction of the shelf. lines: lines with a new state. rows: new rows, each with its
    line's number. drops: for each line number, the id below which all rows are deleted. forgotten:
    numbers of empty lines to delete.
    """

    lines: dict[int, Line] = field(default_factory=dict)
    rows: list[tuple[int, Row]] = field(default_factory=list)
    drops: dict[int, int] = field(default_factory=dict)
    forgotten: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lines or self.rows or self.drops or self.forgotten)


class Shelf(Protocol):
    """The database for replicas. If it is lost, the members send again the rows that have not
    landed.
    """

    def write(self, order: Order, done: Callable[[], None]) -> None:
        """Carry out an order. done: called when the order's changes are on disk."""


class Keeping:
    """The replicas that this gateway keeps. lines: the lines on the shelf. room: returns whether
    the disk has room for a number of bytes. most: size limit of all replicas, in bytes. silent_s:
    seconds without a report of a member after which its replicas are landed.
    """

    def __init__(
        self,
        lines: Iterable[Line],
        shelf: Shelf,
        send: Callable[[str, bytes], None],
        room: Callable[[int], bool],
        most: int,
        silent_s: float,
        now: float,
    ) -> None:
        self._shelf = shelf
        self._send = send
        self._room = room
        self._most = most
        self._silent_s = silent_s
        self._began = now
        self._lines = {line.number: line for line in lines}
        self._current: dict[str, int] = {}
        """Number of the newest line of each member."""
        for line in self._lines.values():
            self._current[line.member] = max(line.number, self._current.get(line.member, 0))
        self._since: dict[str, float] = {}
        """Time at which each member's link has last begun or ended."""
        self._telling: set[str] = set()
        """Members that have reported their spools over the current link."""
        self._waiting: deque[tuple[int, list[Row], int]] = deque()
        """Received rows that are not written yet, by frame: number of the line, rows, bytes."""
        self._owed: defaultdict[str, int] = defaultdict(int)
        self._order = Order()
        """The next order to the shelf: changes that are not given to it yet."""
        self._asking: set[int] = set()
        """Numbers of lines whose members get a confirmation when the next order is on disk."""
        self._writing = False
        self.full = False
        """Whether received rows wait because there is no room for them."""

    # -- members

    def joined(self, member: str, now: float) -> None:
        self._since[member] = now
        self._telling.discard(member)

    def link_ended(self, member: str, now: float) -> None:
        self._since[member] = now
        self._telling.discard(member)
        self._forget_waiting(member)

    def received(self, member: str, message: Message) -> None:
        """Handle a message of a member. Raises SiteError."""
        match message:
            case Told():
                self._on_state(member, message)
            case Rows(name, rows):
                line = self._line(member)
                if line is None or line.state.line != name:
                    raise SiteError("it sends copies of a spool that it has not announced")
                size = sum(map(row_bytes, rows))
                self._owed[member] += size
                if self._owed[member] > MOST_OWED:
                    raise SiteError("it sends more copies at once than allowed")
                self._waiting.append((line.number, list(rows), size))
        self._write()

    def _line(self, member: str) -> Line | None:
        return self._lines.get(self._current.get(member, 0))

    def _on_state(self, member: str, state: Told) -> None:
        self._telling.add(member)
        line = self._line(member)
        if line is None or line.state.line != state.line:
            if sum(line.member == member for line in self._lines.values()) >= MOST_LINES:
                raise SiteError("it has begun a new series of spool rows too often")
            number = max(self._lines, default=0) + 1
            line = self._lines[number] = Line(number, member, state, 0)
            self._current[member] = number
        first = max(line.first, state.first)
        line.state = state
        self._drop(line, first)
        if state.keep:
            self._asking.add(line.number)
        else:
            self._forget_waiting(member)

    def _forget_waiting(self, member: str) -> None:
        """Drop the waiting rows of a member. They were not confirmed, so the member sends them
        again, here or to another keeper.
        """
        waiting, self._waiting = self._waiting, deque()
        for item in waiting:
            number, _, size = item
            if self._lines[number].member == member:
                self._owed[member] -= size
            else:
                self._waiting.append(item)

    def _drop(self, line: Line, first: int) -> None:
        line.drop(first)
        self._order.lines[line.number] = line
        self._order.drops[line.number] = first

    # -- the shelf

    def _write(self) -> None:
        if self._writing:
            return
        done: defaultdict[str, int] = defaultdict(int)
        self.full = False
        while self._waiting:
            number, rows, size = self._waiting[0]
            line = self._lines[number]
            fresh = [row for row in rows if row[0] > line.last and row[0] >= line.first]
            if fresh and (self.size + size > self._most or not self._room(size)):
                self.full = True
                break
            self._waiting.popleft()
            done[line.member] += size
            for row in fresh:
                line.grow(row[0], row_bytes(row))
                self._order.rows.append((number, row))
            line.last = max(line.last, rows[-1][0]) if rows else line.last
            self._order.lines[number] = line
            self._asking.add(number)
        if not self._order and not self._asking:
            return
        order, self._order = self._order, Order()
        asking, self._asking = self._asking, set()
        replies = [(line.member, Held(line.state.line, line.last)) for line in self._of(asking)]
        self._writing = True
        self._shelf.write(order, lambda: self._wrote(done, replies))

    def _of(self, numbers: Iterable[int]) -> list[Line]:
        return [self._lines[number] for number in numbers if number in self._lines]

    def _wrote(self, done: dict[str, int], replies: Sequence[tuple[str, Held]]) -> None:
        self._writing = False
        for member, size in done.items():
            self._owed[member] -= size
        for member, reply in replies:
            line = self._line(member)
            if member in self._telling and line is not None and line.state.line == reply.line:
                self._send(member, encode(reply))
        self._write()

    # -- lines that land here

    def due(self, now: float) -> Line | None:
        """Return a line whose rows this gateway has to land now, or None. A line is due if its
        member has begun another line. It is also due if the member has not reported its spool
        within `silent_s` after its link began or ended.
        """
        for line in self._lines.values():
            if line.parts and (self._is_over(line) or self._is_silent(line.member, now)):
                return line
        return None

    def _is_over(self, line: Line) -> bool:
        return self._current.get(line.member) != line.number

    def _is_silent(self, member: str, now: float) -> bool:
        if member in self._telling:
            return False
        return now - self._since.get(member, self._began) > self._silent_s

    def landed(self, line: Line, last: int) -> None:
        """Note that rows of a line up to `last` are on disk in this gateway's spool."""
        if self._lines.get(line.number) is line:
            self._drop(line, max(line.first, last + 1))
            self._write()

    def advance(self) -> None:
        """Delete each line that has no rows here any more, if its member has a newer line. Call
        this about once a second.
        """
        for line in list(self._lines.values()):
            if self._is_over(line) and not line.parts and not self._waits(line.number):
                del self._lines[line.number]
                self._order.forgotten.append(line.number)
                self._order.lines.pop(line.number, None)
                self._order.drops.pop(line.number, None)
        self._write()

    def _waits(self, number: int) -> bool:
        return any(waiting == number for waiting, _, _ in self._waiting)

    @property
    def size(self) -> int:
        """Bytes of all replicas that this gateway keeps."""
        return sum(line.size for line in self._lines.values())

    def figures(self) -> dict[str, Any]:
        return {"copies_kept_bytes": self.size, "copies_full": self.full}
