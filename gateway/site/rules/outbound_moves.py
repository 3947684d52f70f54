"""Outbound moves of sessions to other members.

In: requests for sessions of this gateway (Take). Out: their parts, as fast as the other member
processes them.

A member may take a session only if it has sent a query about the client since this gateway's last
decision about the client. Its request must contain the epoch from this gateway's reply. After the
commit of the move, the session stays here and cannot be used, until a member reports a newer record
(`ending.py`). If no member reports one, the session is recalled (`lookup.py`: recall).
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from gateway.site.errors import SiteError
from gateway.site.rules.contacts import Contacts
from gateway.site.rules.holder import Held, Holder
from gateway.site.rules.lookup import Lookup
from gateway.site.rules.messages import CREDIT, Give, Part, Take, Wanted
from gateway.site.rules.trust import Trust, Working

AT_ONCE = 512
"""Largest number of sessions that are moving to one member at a time."""
WANTED_BYTES = 32_000_000
"""Largest memory for one member's waiting requests, in bytes. If the requests need more, SiteError
is raised.
"""
_CALL_BYTES = 200
"""Memory that a waiting request takes in addition to its client identifier, in bytes."""
GIVE_BYTES = 512_000
GIVE_ENTRIES = 1024
RECALL_S = 4.0
"""Seconds until this gateway recalls a suspect session, or a session that has moved away and of
which no member has reported a newer record. Counted from the start or the move, and again from each
recall.
"""
APART_S = 0.25
"""Difference of the recall time (RECALL_S) between consecutive members, in the order of their
names, in seconds. If the times were equal, two members that start together and query each other at
the same time would give way to each other forever.
"""

Parts = Sequence[bytes] | None


class _Leaver:
    """The sessions that one member has requested. Exists as long as the member's link."""

    def __init__(self) -> None:
        self.wanted: deque[Wanted] = deque()
        self.bytes = 0
        """Memory that the requests in `wanted` take, in bytes."""
        self.giving = 0
        self.ready: deque[tuple[Wanted, Parts]] = deque()
        self.credit = CREDIT


class OutboundMoves:
    def __init__(
        self,
        contacts: Contacts,
        holder: Holder,
        trust: Trust,
        working: Working,
        lookup: Lookup,
    ) -> None:
        self._contacts = contacts
        self._holder = holder
        self._trust = trust
        self._working = working
        self._lookup = lookup
        self._leavers: dict[str, _Leaver] = {name: _Leaver() for name in contacts}
        self._recall_s = RECALL_S + APART_S * contacts.place(contacts.me)
        self._recalls: deque[tuple[float, str]] = deque()
        """Time and client of each planned recall, in the order of the times."""
        self._is_set = False
        """Whether a call for the first entry of `_recalls` is planned."""
        for client in holder.unsettled():
            self._recall_later(client)

    def on_take(self, member: str, take: Take) -> None:
        leaver = self._leavers[member]
        leaver.wanted.extend(take.wanted)
        leaver.bytes += sum(_CALL_BYTES + len(wanted.client) for wanted in take.wanted)
        self._give(member)
        if leaver.bytes > WANTED_BYTES:
            raise SiteError("it requests sessions faster than it processes them", member)

    def on_got(self, member: str) -> None:
        leaver = self._leavers[member]
        leaver.credit = min(leaver.credit + 1, CREDIT)
        if leaver.ready:
            self._contacts.afterwards[self._flush] = None

    def _give(self, member: str) -> None:
        leaver = self._leavers[member]
        while leaver.wanted and leaver.giving + len(leaver.ready) < AT_ONCE:
            wanted = leaver.wanted.popleft()
            leaver.bytes -= _CALL_BYTES + len(wanted.client)
            record = self._record_for(member, wanted)
            if record is None:
                leaver.ready.append((wanted, None))
                self._contacts.afterwards[self._flush] = None
                continue
            leaver.giving += 1
            self._working.begin(wanted.client)
            self._trust.settled(wanted.client)
            first = record.given_to != member
            done: Callable[[Parts], None] = partial(self._exported, member, leaver, wanted, first)
            self._holder.give(wanted.client, member, done)

    def _record_for(self, member: str, wanted: Wanted) -> Held | None:
        """Return the record of the wanted session if the session may move to the member, else
        None.
        """
        client = wanted.client
        record = self._holder.record(client)
        if record is None or not record.session or record.epoch != wanted.epoch:
            return None
        if self._lookup.is_deciding(client):
            return None
        may = record.given_to == member or self._trust.has_asked(client, member)
        return record if may else None

    def _exported(
        self, member: str, leaver: _Leaver, wanted: Wanted, first: bool, parts: Parts
    ) -> None:
        """Note that the commit of a session move is on disk, and send the session's parts to
        `member`. first: whether this commit gave the session to the member. False if an earlier
        commit did, and the member has asked again.
        """
        if parts is not None and first:
            self._recall_later(wanted.client)
            self._contacts.statistics.moved_out += 1
        if leaver is self._leavers[member]:
            leaver.giving -= 1
            leaver.ready.append((wanted, parts))
            self._contacts.afterwards[self._flush] = None
            self._contacts.wake(self._contacts.now)
        self._working.finish(wanted.client)

    def _part(self, wanted: Wanted, parts: Parts) -> Part:
        record = self._holder.record(wanted.client)
        try:
            if parts is not None and record is not None:
                data = parts[wanted.part]
                suspect = record.suspect
                return Part(wanted.client, wanted.epoch, wanted.part, len(parts), data, suspect)
        except IndexError:  # no such part, or the session has ended
            pass
        return Part(wanted.client, wanted.epoch, 0, 0, b"")

    def link_ended(self, member: str) -> None:
        self._leavers[member] = _Leaver()

    def _flush(self) -> None:
        for member, leaver in self._leavers.items():
            while leaver.ready and leaver.credit:
                moved_parts: list[Part] = []
                size = 0
                while leaver.ready and size < GIVE_BYTES and len(moved_parts) < GIVE_ENTRIES:
                    wanted, parts = leaver.ready.popleft()
                    part = self._part(wanted, parts)
                    size += len(part.data) + 2 * len(part.client)
                    moved_parts.append(part)
                leaver.credit -= 1
                self._contacts.say(member, Give(tuple(moved_parts)))
            if leaver.wanted:
                self._give(member)

    def _recall_later(self, client: str) -> None:
        self._recalls.append((self._contacts.now + self._recall_s, client))
        if not self._is_set:
            self._is_set = True
            self._contacts.plan(self._recalls[0][0], self._recall)

    def _recall(self) -> None:
        everybody = all(contact.up for contact in self._contacts.values())
        while self._recalls and self._recalls[0][0] <= self._contacts.now:
            _, client = self._recalls.popleft()
            record = self._holder.record(client)
            if record is None or not (record.given_to is not None or record.suspect):
                continue
            again = partial(self._recall_later, client)
            if not everybody:
                again()
            elif record.given_to is not None:
                self._lookup.recall(client, lambda: None)
                again()
            else:
                self._lookup.recall(client, again)
        self._is_set = bool(self._recalls)
        if self._is_set:
            self._contacts.plan(self._recalls[0][0], self._recall)
