"""Lists of all sessions of a site, for users. No client waits for a list.

In: requests of users here, and of other members. Out: counts, and lists in pages, for users of this
gateway and for the other members. A member prepares one list at a time for each other member. A
newer request of that member replaces the list.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from gateway.errors import OncewayError
from gateway.site.rules.session_list import Told, Want, What, decode, encode
from gateway.store.session_views import SessionView

PAGE_ROWS = 256
PAGE_BYTES = 200_000
"""A page that is larger than this, in bytes, gets no further row. A row has less than 800,000
bytes, so a page always fits into a frame.
"""
MOST_WANTED = 8
"""Largest number of waiting requests of one member. A further request replaces the oldest."""
PATIENCE_S = 2.0
"""Seconds after which a member without an answer counts as silent."""

Row = dict[str, Any]
_Count = Annotated[int, Field(ge=0, le=1 << 53)]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a member's sessions. sessions, connected: all sessions, and those with a
    connection. given: sessions that have departed and have not arrived yet. in_doubt: sessions of
    which another member may have a newer one.
    """

    sessions: _Count
    connected: _Count
    given: _Count  # prose: JSON key
    in_doubt: _Count


@dataclass(frozen=True, slots=True)
class _Shown(SessionView):
    place: str | None = None


_COUNTS = TypeAdapter(Counts)
_PAGE = TypeAdapter(Annotated[list[_Shown], Field(max_length=PAGE_ROWS)])


class Silent(Exception):
    """Error: a member does not answer."""


class Listing:
    """The lists of sessions. others: names of the other members. send: sends a frame to a member,
    or drops it. up: the members with a link. counts: returns the counts of this gateway. rows:
    returns the rows of its sessions.
    """

    def __init__(
        self,
        others: list[str],
        send: Callable[[str, bytes], None],
        up: set[str],
        counts: Callable[[], Counts],
        rows: Callable[[], Iterator[Row]],
    ) -> None:
        self._others = others
        self._send = send
        self._up = up
        self._counts = counts
        self._rows = rows
        self._number = 0
        self._asked: dict[tuple[str, int], asyncio.Future[Told]] = {}
        self._wanted: deque[tuple[str, Want]] = deque()
        """Requests of other members. Each turn of the event loop answers one."""
        self._lists: dict[str, tuple[int, Iterator[Row]]] = {}
        """Lists in progress, by member: number and remaining rows."""
        self._listing = False
        """Whether a user is reading a list now."""
        self._one = asyncio.Lock()
        """Lock, held while this gateway reads lists from other members. A member prepares only one
        list at a time for this gateway.
        """
        self._counting: asyncio.Task[Mapping[str, Counts | None]] | None = None

    # -- answers for people

    async def counts(self) -> Mapping[str, Counts | None]:
        """Return the counts of each other member, None for a member that does not answer.
        Concurrent callers share an answer.
        """
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(self._count())
        return await asyncio.shield(self._counting)

    async def _count(self) -> Mapping[str, Counts | None]:
        found = await asyncio.gather(*map(self._counted, self._others))
        return dict(zip(self._others, found, strict=True))

    async def _counted(self, member: str) -> Counts | None:
        try:
            reply = await self._ask(member, Want(self._next(), What.COUNTS))
            return _COUNTS.validate_json(reply.data, strict=True)
        except (Silent, ValidationError):
            return None

    async def sessions(self) -> AsyncIterator[Row]:
        """Yield the sessions of the other members as rows. The key `member` of each row names the
        member. If a member stops answering, its last row has the key `silent`. Raises OncewayError
        if this list is already being made for another user.
        """
        if self._listing:
            raise OncewayError(
                "another command is listing the sessions of the site", hint="Try again"
            )
        self._listing = True
        try:
            async with self._one:
                async for row in self._rows_of_others():
                    yield row
        finally:
            self._listing = False

    async def holders(self) -> dict[str, set[str] | None]:
        """Return, for each other member, the clients whose sessions it has; None for a member that
        does not answer. While a user's list is in progress, this call waits, and vice versa.
        """
        found: dict[str, set[str] | None] = {member: set() for member in self._others}
        async with self._one:
            async for row in self._rows_of_others():
                if "silent" in row:
                    found[row["member"]] = None
                elif (clients := found[row["member"]]) is not None:
                    clients.add(row["client"])
        return found

    async def _rows_of_others(self) -> AsyncIterator[Row]:
        for member in self._others:
            try:
                async for row in self._list(member):
                    yield {"member": member} | row
            except (Silent, ValidationError):
                yield {"member": member, "silent": True}

    async def _list(self, member: str) -> AsyncIterator[Row]:
        want, more = Want(self._next(), What.PAGE), True
        while more:
            reply = await self._ask(member, want)
            for row in _PAGE.validate_json(reply.data, strict=True):
                shown = asdict(row)
                if row.place is None:
                    del shown["place"]
                yield shown
            more = reply.more

    def _next(self) -> int:
        self._number = (self._number + 1) & 0xFFFF_FFFF
        return self._number

    async def _ask(self, member: str, want: Want) -> Told:
        """Send a request and return its answer. Raises Silent."""
        if member not in self._up:
            raise Silent
        key = member, want.number
        answer = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            self._send(member, encode(want))
            return await asyncio.wait_for(answer, PATIENCE_S)
        except TimeoutError as error:
            raise Silent from error
        finally:
            self._asked.pop(key, None)

    # -- answers for other members

    def received(self, member: str, frame: bytes) -> None:
        """Handle a frame of a member: an answer or a request. Raises SiteError."""
        message = decode(frame)
        if isinstance(message, Told):
            answer = self._asked.get((member, message.number))
            if answer is not None and not answer.done():
                answer.set_result(message)  # late answers are dropped
            return
        mine = [item for item in self._wanted if item[0] == member]
        if len(mine) >= MOST_WANTED:
            self._wanted.remove(mine[0])
        if not self._wanted:
            asyncio.get_running_loop().call_soon(self._tell)
        self._wanted.append((member, message))

    def link_ended(self, member: str) -> None:
        """Drop the requests and lists of a member. Calls that wait for the member's answers raise
        Silent.
        """
        self._lists.pop(member, None)
        self._wanted = deque(item for item in self._wanted if item[0] != member)
        for (asked, _), answer in self._asked.items():
            if asked == member and not answer.done():
                answer.set_exception(Silent())

    def _tell(self) -> None:
        """Answer the oldest request. If more wait, answer the next one in a later turn of the event
        loop.
        """
        if not self._wanted:
            return
        member, want = self._wanted.popleft()
        more = False
        if want.subject is What.COUNTS:
            data = json.dumps(asdict(self._counts())).encode()
        else:
            data, more = self._page(member, want.number)
        self._send(member, encode(Told(*want, more, data)))
        if self._wanted:
            asyncio.get_running_loop().call_soon(self._tell)

    def _page(self, member: str, number: int) -> tuple[bytes, bool]:
        """Return the next page of a list, and whether more pages follow."""
        known, rows = self._lists.get(member, (None, iter(())))
        if known != number:
            rows = self._rows()
            self._lists[member] = number, rows
        page: list[bytes] = []
        size = 0
        for row in rows:
            page.append(json.dumps(row, ensure_ascii=False).encode())
            size += len(page[-1])
            if len(page) == PAGE_ROWS or size > PAGE_BYTES:
                return b"[%s]" % b",".join(page), True
        self._lists.pop(member, None)
        return b"[%s]" % b",".join(page), False
