"""Replication of this gateway's spool on a second disk: the choice of the member that keeps the
replicas, and their progress. Sans-IO.

In: rows on this disk, landed rows, members that join and leave and their confirmations, the time.
Out: rows for one member, and the row up to which the spool is safe: replicated on that member's
disk, or landed.

- A member is chosen: it gets TOLD with `keep`.
- The member sends its first HELD: it gets the rows that it lacks, in order of the ids. These rows
  come from the disk while the member is far behind, then from memory. At most WINDOW_BYTES are
  unconfirmed.
- The member sends a later HELD: the spool is safe up to the row in it.
- The member leaves: the first present member by name is chosen.
- HELD names a row that the member cannot have: this disk has lost rows. A new line (series of rows)
  begins, and the member lands the rows of the old line at once.

If the spool is not safe and makes no progress for more than WAIT_S, new publications are refused,
and another member is tried if there is one. If that does not help either, publishers that still
wait are disconnected every WAIT_S.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.replication.messages import (
    PIECE_BYTES,
    Held,
    Message,
    Row,
    Rows,
    Told,
    encode,
    portions,
    row_bytes,
)

WINDOW_BYTES = FRAME_BYTES
"""Largest number of bytes sent to a member and not confirmed."""
WAIT_S = 10.0
_RECENT_BYTES = 4 << 20
"""Largest number of bytes of unsent rows in memory. If there are more, they are dropped from
memory, and read from the disk later.
"""


class Spool(Protocol):
    """The interface of this gateway's spool, as replication needs it."""

    def read(self, after: int, before: int, done: Callable[[Sequence[Row], bool], None]) -> None:
        """Read the first rows between two ids, both exclusive. done: called with the rows, and with
        whether these are all rows between the ids.
        """

    def safe(self, row: int) -> None:
        """Note that all rows up to this id are on two disks, or have landed."""

    def refuse(self, refuses: bool) -> None:
        """Refuse new publications, or accept them again."""

    def send_away(self) -> None:
        """End the connections of publishers whose messages still wait for replication."""

    def begin_line(self, done: Callable[[Told], None]) -> None:
        """Begin another line of the spool: a series of rows with a new identifier (`Told.line`).
        done: called with the new state of the spool.
        """


class Copying:
    """Replication of this gateway's spool. send: sends a frame to a member, or drops it. state: the
    state of the spool, with `keep` unset. last: id of the last row on this disk.
    """

    def __init__(
        self, spool: Spool, send: Callable[[str, bytes], None], state: Told, last: int, now: float
    ) -> None:
        self._spool = spool
        self._send = send
        self._state = state
        self.last = last
        """Id of the last spool row on this gateway's disk."""
        self._up: set[str] = set()
        self.holder: str | None = None
        """The member that has the replicas, or will get them; None if no other member is
        connected.
        """
        self._asked = False
        """Whether this gateway waits for the holder to report which rows it has."""
        self._before = last
        """Highest id of a row that a member may have received before this gateway's start; 0 once a
        new line has begun.
        """
        self._sent_to: dict[str, int] = {}
        """Id of the last row that was sent to each member since this gateway's start."""
        self._sent = 0
        """Highest id up to which each row is at the holder, in flight to the holder, or landed."""
        self._flying: deque[tuple[int, int]] = deque()
        """Frames that are not confirmed: id of the last row in the frame, and bytes of the frame.
        """
        self._flying_bytes = 0
        self._recent: deque[Row] = deque()
        self._recent_bytes = 0
        self._reading = 0
        """Number of the read in progress; 0 for none."""
        self._readings = 0
        self._safe = state.first - 1
        self._since: float | None = now
        """Time since which rows of the spool have waited to become safe, without progress; None if
        all rows are safe.
        """
        self.refusing = False
        self._renewing = False
        self._renewed_once = False

    @property
    def behind(self) -> int:
        """Number of spool rows that are only on this disk and have not landed."""
        return max(0, self.last - self._safe)

    def _tell(self, members: Iterable[str]) -> None:
        for member in members:
            keep = member == self.holder
            self._send(member, encode(self._state.model_copy(update={"keep": keep})))

    # -- members

    def joined(self, member: str, now: float) -> None:
        self._up.add(member)
        if self.holder is None:
            self._choose(member)
        else:
            self._tell((member,))
        self.advance(now)

    def link_ended(self, member: str, now: float) -> None:
        self._up.discard(member)
        if member == self.holder:
            self._choose(min(self._up, default=None))
        self.advance(now)

    def _choose(self, member: str | None) -> None:
        before, self.holder = self.holder, member
        self._asked = member is not None
        self._flying.clear()
        self._flying_bytes = self._reading = 0
        self._tell(self._up & {before or "", member or ""})

    def received(self, member: str, message: Message, now: float) -> None:
        """Handle a message of a member. Raises SiteError."""
        if not isinstance(message, Held) or member != self.holder:
            return
        line, last = message
        if line != self._state.line or self._renewing:
            return  # for another line
        if last > max(self._before, self._sent_to.get(member, 0)):
            if self._renewed_once or not self._asked:
                raise SiteError("it confirms copies that were not sent to it")
            self._renewing = True
            self._spool.begin_line(self._renewed)
        elif self._asked or last > self._sent:  # the member kept rows from earlier
            self._asked = False
            self._flying.clear()
            self._flying_bytes = 0
            self._sent = max(last, self._state.first - 1)
            self._became_safe(self._sent, now)
        else:
            while self._flying and self._flying[0][0] <= last:
                self._flying_bytes -= self._flying.popleft()[1]
            self._became_safe(last if self._flying else self._sent, now)
        self._pump(now)

    def _renewed(self, state: Told) -> None:
        self._renewing, self._renewed_once = False, True
        self._before = 0
        self._sent_to.clear()
        self._state = state
        self._choose(self.holder)
        self._tell(self._up - {self.holder or ""})

    # -- the spool

    def committed(self, rows: Sequence[Row], now: float) -> None:
        """Note that a commit has put these spool rows on this gateway's disk."""
        self.last = rows[-1][0]
        self._recent += rows
        self._recent_bytes += sum(map(row_bytes, rows))
        if self._recent_bytes > _RECENT_BYTES:
            self._recent.clear()
            self._recent_bytes = 0
        self._since = self._since or now
        self._pump(now)

    def looked(self, state: Told, now: float) -> None:
        """Handle the current state of the spool, which shows the rows that have landed."""
        if state != self._state and state.line == self._state.line:
            self._state = state
            self._tell(self._up)
            self._became_safe(state.first - 1, now)
            self._sent = max(self._sent, state.first - 1)
        self.advance(now)

    def _became_safe(self, row: int, now: float) -> None:
        if row > self._safe:
            self._safe = row
            self._since = now
            self._refuse(False)
            self._spool.safe(row)
        if self._safe >= self.last and self.holder is not None and not self._asked:
            self._since = None
            self._refuse(False)

    def _refuse(self, refuses: bool) -> None:
        if refuses != self.refusing:
            self.refusing = refuses
            self._spool.refuse(refuses)

    def _pump(self, now: float) -> None:
        """Send rows to the holder until WINDOW_BYTES are unconfirmed. If the next row is not in
        memory, request rows from the store and stop.
        """
        while self.holder is not None and not self._asked and self._sent < self.last:
            while self._recent and self._recent[0][0] <= self._sent:
                self._recent_bytes -= row_bytes(self._recent.popleft())
            room = WINDOW_BYTES - self._flying_bytes
            if self._flying and room < PIECE_BYTES:
                return
            if not self._recent or self._recent[0][0] > self._sent + 1:
                self._read(now)
                return
            self._put(self._from_memory(room if self._flying else PIECE_BYTES))

    def _from_memory(self, room: int) -> list[Row]:
        rows: list[Row] = []
        room = min(room, PIECE_BYTES)
        while self._recent:
            size = row_bytes(self._recent[0])
            room -= size
            if rows and room < 0:
                break
            self._recent_bytes -= size
            rows.append(self._recent.popleft())
        return rows

    def _put(self, rows: Sequence[Row]) -> None:
        assert self.holder is not None  # noqa: S101 - the callers have looked
        for part in portions(rows):
            self._sent = part[-1][0]
            frame = encode(Rows(self._state.line, part))
            if len(frame) > FRAME_BYTES:
                continue  # a row from before `copies`
            self._send(self.holder, frame)
            self._flying.append((self._sent, len(frame)))
            self._flying_bytes += len(frame)
            self._sent_to[self.holder] = max(self._sent, self._sent_to.get(self.holder, 0))

    def _read(self, now: float) -> None:
        """Read from the store the rows that the holder lacks and that are older than the rows in
        memory.
        """
        if self._reading:
            return
        self._readings += 1
        number = self._reading = self._readings
        before = self._recent[0][0] if self._recent else self.last + 1

        def done(rows: Sequence[Row], all_of_them: bool) -> None:
            if self._reading != number:
                return  # read for a former holder
            self._reading = 0
            self._put([row for row in rows if row[0] > self._sent])
            if all_of_them:
                self._sent = max(self._sent, before - 1)  # missing rows have landed
                if not self._flying:
                    self._became_safe(self._sent, now)
            self._pump(now)

        self._spool.read(self._sent, before, done)

    # -- time

    def advance(self, now: float) -> None:
        """If all rows are safe and a holder has reported, end a refusal of publications. If there
        was no progress for more than WAIT_S, refuse publications and choose another member. Call
        this about once a second.
        """
        if self._safe >= self.last and self.holder is not None and not self._asked:
            self._since = None
            self._refuse(False)
            return
        self._since = now if self._since is None else self._since
        if now - self._since <= WAIT_S:
            return
        self._since = now
        others = sorted(self._up - {self.holder or ""})
        tried = self.refusing or not others
        self._refuse(True)
        if tried:
            self._spool.send_away()
        if others:
            later = [name for name in others if name > (self.holder or "")]
            self._choose((later or others)[0])

    def figures(self) -> dict[str, Any]:
        return {
            "copies_at": None if self._asked else self.holder,
            "copies_behind": self.behind,
            "copies_refusing": self.refusing,
        }
