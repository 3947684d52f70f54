"""One member of a site: where the sessions of clients are, and how they move here. Sans-IO.

In: links that begin and end, frames, the broker's lookups, the time. Out: frames (`send`), changes
of the records here (`holder.py`), answers. All times are seconds on one monotonic clock.
`wake(time)` requests a call of `advance` at this time, or soon if the time is past.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from gateway.site.errors import SiteError
from gateway.site.rules.contacts import BEAT_S, START_S, Contacts, Statistics
from gateway.site.rules.ending import Ending
from gateway.site.rules.holder import Holder
from gateway.site.rules.lookup import Lookup
from gateway.site.rules.merge_window import Windows
from gateway.site.rules.messages import (
    Answer,
    Ask,
    Beat,
    End,
    Endings,
    Give,
    Got,
    Message,
    Names,
    Query,
    Take,
    decode,
)
from gateway.site.rules.outbound_moves import OutboundMoves
from gateway.site.rules.releasing import Done as ReleaseDone
from gateway.site.rules.releasing import Releasing
from gateway.site.rules.replies import Replies
from gateway.site.rules.search import Waiter
from gateway.site.rules.trust import Trust, Working

_NOBODY = "onceway-inside"
"""A client identifier that no session has (`gateway/config`: OWN_NAMES)."""


class Member:
    """A gateway as a member of its site. members: names of the other members."""

    def __init__(
        self,
        name: str,
        members: Iterable[str],
        holder: Holder,
        send: Callable[[str, bytes], None],
        wake: Callable[[float], None],
        now: float,
    ) -> None:
        self.name = name
        self._holder = holder
        self.contacts = contacts = Contacts(name, members, send, wake, now)
        working = Working()
        self._trust = Trust(contacts, holder)
        self._windows = Windows(contacts)
        self._ending = Ending(
            contacts, holder, self._trust, working, self._is_searched, self._mark_searches_suspect
        )
        self._lookup = Lookup(contacts, holder, self._trust, working, self._windows, self._ending)
        self._inbound = self._lookup.inbound
        self._outbound = OutboundMoves(contacts, holder, self._trust, working, self._lookup)
        self._replies = Replies(contacts, holder, self._trust, working, self._lookup)
        self._releasing = Releasing(contacts, holder, self._windows)
        self._beat_at: float | None = None
        self._handlers: dict[type[Message], Callable[[str, Any], None]] = {
            Beat: lambda member, beat: contacts[member].on_beat(beat, contacts.now),
            Ask: self._replies.on_ask,
            Answer: self._on_answer,
            Take: self._outbound.on_take,
            Give: self._inbound.on_give,
            Got: lambda member, _: self._outbound.on_got(member),
            End: self._ending.on_end,
            Endings: self._ending.on_endings,
        }

    @property
    def statistics(self) -> Statistics:
        return self.contacts.statistics

    def is_newest(self, client: str, now: float) -> bool:
        """Whether the client's session is here, and no other member can have a newer one. If so,
        the client continues without a message to other members.
        """
        self.contacts.now = now
        record = self._holder.record(client)
        return client not in self._lookup and self._trust.is_newest(client, record)

    def want_session(
        self,
        client: str,
        now: float,
        done: Waiter,
        clean: bool = False,
        alive: Callable[[], bool] = lambda: True,
        patience: float = START_S,
    ) -> None:
        """Find the newest session of a client that has connected. Call this if the session is not
        here, or if another member may have a newer one.

        clean: whether the client wants no session (Clean Start 1). alive: returns whether the
        client still waits; if not, nothing is decided, and the outcome is `failed`. patience:
        seconds for which the client can wait for members that are expected or busy (`contacts.py`).
        done: called with the outcome, usually within about a second. While a member is expected or
        busy, or a session is moving, the call comes later.
        """
        self.contacts.now = now
        self._lookup.want(client, done, alive, clean, patience)
        if self.contacts.afterwards:
            self._flush()

    def want_release(self, client: str, identifier: int, now: float, done: ReleaseDone) -> None:
        """Ask the other members about a PUBREL whose packet identifier is not known here. done:
        called with whether a member had the identifier and has released it on disk. If no member
        had it, `done` also gets the members that were silent.
        """
        self.contacts.now = now
        self._releasing.want(client, identifier, done)
        if self.contacts.afterwards:
            self._flush()

    def started(self, now: float) -> None:
        """For START_S from now on, expect the members that have had no link yet to connect. Called
        when the links have started, and again when this gateway's start is complete.
        """
        self.contacts.now = now
        for contact in self.contacts.values():
            contact.started(now)

    def joined(self, member: str, now: float, begun: bool = False) -> None:
        """Note a link to the member. begun: whether the member has started since its last link."""
        self.contacts.now = now
        contact = self.contacts[member]
        contact.joined(now, begun)
        self.contacts.say(member, Names(self.contacts.names))
        self._lookup.joined(member)
        self._releasing.joined(member)
        self._ending.joined(member)
        if self._beat_at is None:
            self._beat()
        self.advance(now)

    def link_ended(self, member: str, now: float, stopped: bool = False) -> None:
        """Note the end of a link; frames sent over it may be lost. stopped: whether the member has
        announced its stop.
        """
        self.contacts.now = now
        self.contacts[member].link_ended(now, stopped)
        self._windows.link_ended(member)
        self._ending.link_ended(member)
        self._outbound.link_ended(member)
        self._inbound.link_ended(member)
        self._lookup.link_ended(member)
        self._releasing.link_ended()
        if self.contacts.afterwards:
            self._flush()

    def received(self, member: str, frame: bytes, now: float) -> None:
        """Handle a frame of the member. Raises SiteError if the frame is invalid; then the link has
        to end.
        """
        self.contacts.now = now
        message = decode(frame)
        contact = self.contacts[member]
        contact.heard = now
        if isinstance(message, Names) != (contact.names is None):
            raise SiteError("its first frame, and no other, must name the members", member)
        if isinstance(message, Names):
            contact.names = message.members
        else:
            self._handlers[type(message)](member, message)
        if self.contacts.afterwards:
            self._flush()

    def _on_answer(self, member: str, message: Answer) -> None:
        for asker, reply in self._windows.answered(member, message):
            asker(member, reply)

    def advance(self, now: float) -> float:
        """Make the planned calls that are due. Return the time of the next planned call, or
        infinity.
        """
        self.contacts.now = now
        timed = self.contacts.timed
        while timed and timed[0][0] <= now:
            heapq.heappop(timed)[2]()
        if self.contacts.afterwards:
            self._flush()
        return timed[0][0] if timed else float("inf")

    def _beat(self) -> None:
        now = self.contacts.now
        self._beat_at = now + BEAT_S
        self.contacts.plan(self._beat_at, self._beat)
        for contact in self.contacts.values():
            self.contacts.say(contact.name, contact.beat(now))
            if contact.mute and contact.up:  # does it answer again?
                self._windows.ask(contact.name, Query(_NOBODY), lambda *_: None)

    def _flush(self) -> None:
        """Make the calls that were postponed until the end of the present call."""
        afterwards = self.contacts.afterwards
        while afterwards:
            call = next(iter(afterwards))
            del afterwards[call]
            call()

    def _is_searched(self, client: str) -> bool:
        return client in self._lookup

    def _mark_searches_suspect(self) -> None:
        self._lookup.mark_all_suspect()
