"""Session lookups of this gateway: where a client's session is.

In: clients whose session is not here, or may not be the newest; the members' replies; time. Out:
queries, a request for the newest session, this gateway's record of the client, and an `Outcome`
for the caller.

One client has one search at a time, in these stages:

  ASKING     all members are queried. A member that replies BUSY is queried again. A member
             without an answer counts as silent after `answer_s` (`contacts.py`). A member without a
             link counts as silent earlier: as soon as its last lease from this member is over.
             The search waits longer for a member that is expected or busy (`contacts.py`), as far
             as the client can wait. A restored member that may have forgotten something counts as
             silent
  MOVING     a session comes from another member (`inbound_moves.py`)
  SETTLING   the decision is on its way to the disk

If two members search for the same client at the same time, the member with the lower name goes
first: the other member answers this member's query, and then queries all members again.
"""

from collections.abc import Callable, Sequence
from functools import partial

from gateway.site.rules.contacts import RESTART_S, START_S, Contacts
from gateway.site.rules.ending import Ending
from gateway.site.rules.holder import Held, Holder, Outcome
from gateway.site.rules.inbound_moves import InboundMoves
from gateway.site.rules.merge_window import Windows
from gateway.site.rules.messages import MAX_EPOCH, Kind, Query, Reply
from gateway.site.rules.search import GONE, Alive, Claim, Decision, Search, Stage, Waiter
from gateway.site.rules.suspect import doubt
from gateway.site.rules.trust import Trust, Working

MOST_TURNS = 64
"""Number of repeated queries to all members for one search. After this number, the search no longer
gives way to another member's search.
"""
PATIENCE_S = 10.0
"""If the member with the session does not hand it over, all members are queried again until this
many seconds after the start of the search. After that time, the search fails instead.
"""

FRESH_S = 0.9
"""Greatest age of a query, in seconds, at which its reply still counts when the client sends
another CONNECT. If the query is older, the member is queried again. Until then the reply is
reliable: the member that gave it waits ANSWER_S, which is longer, before it decides about the
client without this member's answer.
"""
TURN_S = 0.1
"""Seconds by which this member delays its queries, if members with higher names have asked for the
same client before. Otherwise this member would always go first, because of its lower name.
"""


class Lookup:
    def __init__(
        self,
        contacts: Contacts,
        holder: Holder,
        trust: Trust,
        working: Working,
        windows: Windows,
        ending: Ending,
    ) -> None:
        self._contacts = contacts
        self._holder = holder
        self.trust = trust
        self._working = working
        self._windows = windows
        self.inbound = InboundMoves(contacts, self.arrived, self.lost, self.refused)
        self._ending = ending
        self._searches: dict[str, Search] = {}

    def __contains__(self, client: str) -> bool:
        return client in self._searches

    def want(
        self, client: str, done: Waiter, alive: Alive, clean: bool, patience: float = START_S
    ) -> None:
        """Find the newest session of a client, and move it here. See `Member.want_session`."""
        search = self._searches.get(client)
        if search is not None and search.stage is not Stage.ASKING:
            search.later.append(partial(self.want, client, done, alive, clean, patience))
            return
        waited = search is not None and bool(search.waiters)
        if search is None or not waited:
            search = self._begin(client)
        if waited:
            self._contacts.statistics.superseded += search.supersede()
        search.waiters.append((done, alive))
        search.clean = clean
        search.patience = self._contacts.now + (0 if clean else min(RESTART_S, patience))
        search.asked = self._contacts.now
        if waited:
            self._refresh(search)
            self._look(search)
            return
        me, contacts = self._contacts.me, self._contacts
        if search.suspects and any(me < one and contacts[one].up for one in search.suspects):
            search.quiet_until = contacts.now + TURN_S
        self._ask_all(search)

    def _refresh(self, search: Search) -> None:
        """Query again each member whose reply may be outdated: the client may have connected there
        since, and that member may have decided about the client without asking this member.
        """
        if search.quiet_until:
            return
        now = self._contacts.now
        for name, contact in self._contacts.items():
            if now >= min(contact.lease, search.queried.get(name, now) + FRESH_S):
                search.forget_reply(name)
                if contact.up:
                    self._query(search, name)

    def recall(self, client: str, dropped: Callable[[], None]) -> None:
        """Find out which member has the newest session of a client, whose session here has moved
        away or is suspect. If no other member has a session of the client, a session that has moved
        away is usable here again.

        dropped: called if there is no result; the caller must then try again later. There is no
        result if a member is silent or busy, or if another lookup or a commit for this client is in
        progress or begins.
        """
        if client in self._searches or client in self._working:
            dropped()
            return
        search = self._begin(client)
        search.dropped = dropped
        self._ask_all(search)

    def _begin(self, client: str) -> Search:
        if (earlier := self._searches.get(client)) is not None:
            self._abandon(earlier)
            earlier.dropped()
        suspects = self.trust.settled(client)
        search = Search(client, suspects, self._contacts.now)
        self._searches[client] = search
        return search

    def yields(self, client: str, member: str) -> bool:
        """Whether this gateway may answer a member's query about this client, and so give up the
        session. A search here may end or begin again to make way for the member's search.
        """
        if client in self._working:
            return False
        search = self._searches.get(client)
        if search is None:
            return True
        if search.stage is not Stage.ASKING:
            return False
        if not search.waiters:
            self._abandon(search)
            search.dropped()
            return True
        if not any(alive() for _, alive in search.waiters):
            self._fail(search, GONE)
            return True
        if search.quiet_until:
            search.forget_replies()
            return True
        if self._contacts.me < member or search.turn >= MOST_TURNS:
            return False
        search.asked = self._contacts.now
        self._again(search)
        return search.stage is Stage.ASKING

    def is_deciding(self, client: str) -> bool:
        """Whether a decision about this client is in progress, so that nothing else may change the
        client's record.
        """
        search = self._searches.get(client)
        return client in self._working or (search is not None and search.stage is not Stage.ASKING)

    def _again(self, search: Search) -> None:
        search.forget_replies()
        search.stage = Stage.ASKING
        self._ask_all(search)

    def _start_over(self, search: Search, turn: int) -> None:
        """Query all members again, with a new deadline. Earlier replies no longer count. turn:
        `Search.turn` as the caller knows it; if it has changed, all members were queried again
        already, and nothing is done.
        """
        if search.turn == turn and search.stage is not Stage.OVER:
            search.asked = self._contacts.now
            self._again(search)

    def _ask_all(self, search: Search) -> None:
        if search.stage is not Stage.ASKING:
            return
        if search.quiet_until > self._contacts.now:
            self._look_at(search, search.quiet_until)
            return
        search.quiet_until = 0.0
        for contact in self._contacts.values():
            if contact.up and contact.name not in search.answered:
                self._query(search, contact.name)
        self._look(search)

    def _query(self, search: Search, member: str) -> None:
        search.queried[member] = now = self._contacts.now
        asker = partial(self._on_reply, search, search.turn, now)
        self._windows.ask(member, Query(search.client), asker)

    def _on_reply(
        self, search: Search, turn: int, queried: float, member: str, reply: Reply
    ) -> None:
        if search.stage is not Stage.ASKING or search.turn != turn:
            return
        if search.queried[member] != queried:
            return
        if reply.kind is Kind.BUSY:
            if not search.waiters:
                self._abandon(search)  # a member is deciding
                search.dropped()
                return
            search.busy.add(member)
            if self._contacts.now < search.silent_from(self._contacts, member):
                self._query(search, member)
            return
        search.busy.discard(member)
        search.answered.add(member)
        (search.restored.add if reply.restored else search.restored.discard)(member)
        if reply.kind is Kind.CLAIM and (reply.session or reply.older or reply.suspect):
            search.claims[member] = Claim(
                reply.epoch,
                reply.session,
                self._contacts.placed(member, reply.moved_to),
                self._contacts.unmask(member, reply.older),
                reply.suspect,
                reply.copied,
            )
        self._look(search)

    def _look(self, search: Search) -> None:
        """Make the decision if each member has answered or is silent. Otherwise plan the next
        check.
        """
        if search.stage is not Stage.ASKING:
            return
        if search.quiet_until:
            search.asked = self._contacts.now
            self._ask_all(search)
            return
        silent = [name for name in self._contacts if name not in search.answered]
        until = max((search.silent_from(self._contacts, name) for name in silent), default=0.0)
        if self._contacts.now < until:
            self._look_at(search, until)
            return
        if search.client in self._working:
            self._working.wait(search.client, partial(self._start_over, search, search.turn))
            return
        for name in silent:
            self._contacts[name].passed_over(self._contacts.now, search.asked)
        search.silent = (*silent, *sorted(search.restored & search.answered))
        self._decide(search)

    def _look_at(self, search: Search, time: float) -> None:
        if search.looks != time:
            search.looks = time
            self._contacts.plan(time, partial(self._look, search))

    def _decide(self, search: Search) -> None:
        client, me, claims = search.client, self._contacts.me, search.claims
        if search.waiters and not any(alive() for _, alive in search.waiters):
            self._fail(search, GONE)
            return
        own = self._holder.record(client)
        if own is not None:
            unsure = self.trust.unsure(client) | search.suspects
            claims[me] = Claim(*own, unsure)
        decision = search.decision = search.decide(me)
        if search.silent and decision.epoch < MAX_EPOCH:
            epoch = max(decision.epoch, self._ending.above(client))
            decision = search.decision = decision._replace(epoch=epoch)
        if decision.epoch >= MAX_EPOCH:
            self._fail(search, "a member claims an impossible epoch")
        elif not search.waiters and (search.silent or decision.source != me):
            self._abandon(search)
            if search.silent:
                search.dropped()
            elsewhere = decision.source not in (None, me) and not search.silent
            if own is not None and elsewhere and decision.source not in own.older:
                # another member has the newest session: our record ends
                self._working.begin(client)
                self.trust.settled(client)
                self._holder.end(client, own.epoch + 1, partial(self._working.finish, client))
        elif decision.source in (None, me):
            self._decide_here(search, own, decision)
        else:
            self._fetch(search, own, decision.source)

    def _decide_here(self, search: Search, own: Held | None, decision: Decision) -> None:
        """Handle the decision that the session is here, or begins here."""
        client = search.client
        if _stands(own, decision):
            search.decision = decision._replace(epoch=own.epoch if own else decision.epoch)
            self._settled(search)
            return
        search.stage = Stage.SETTLING
        self._working.begin(client)
        if decision.suspect:  # same commit: the caller may be gone
            self._holder.mark_suspect(client, lambda: None)
        done = partial(self._on_disk, search, None, None)
        self._holder.stand(client, decision.epoch, decision.older, done)

    def _fetch(self, search: Search, own: Held | None, source: str) -> None:
        """Handle the decision that the session is at another member."""
        search.stage = Stage.MOVING
        if own is None or source not in own.older:
            self._claim(search)
            return

        def doubted(_: int) -> None:
            self._working.finish(search.client)
            self._claim(search)
            if self._contacts.afterwards:  # called by a commit, not by a `Member` method
                self._contacts.wake(self._contacts.now)

        # This member's record and the source's name each other's members. Once the session has
        # moved here, this member's record looks like its successor, even if nothing arrives. So the
        # record is marked as suspect first, and names the same members as the source's record.
        # These are notified with the next decision, because a suspect session is recalled
        # (`outbound_moves.py`).
        self._working.begin(search.client)
        names = search.claims[source].older & self._contacts.keys()
        doubt(self._holder, search.client, own, names, doubted)

    def mark_all_suspect(self) -> None:
        """Mark all decisions that are not on disk yet as suspect, because another member may have
        forgotten its records.
        """
        for search in self._searches.values():
            if search.decision is not None:
                search.decision = search.decision._replace(suspect=True)

    def _claim(self, search: Search) -> None:
        decision = search.decision
        assert decision is not None and decision.source is not None  # noqa: S101, PT018 - it is MOVING
        if self._contacts[decision.source].up:
            claimed = search.claims[decision.source].epoch
            self.inbound.claim(search.client, decision.source, claimed)
        else:
            self.lost(search.client)

    def arrived(self, client: str, parts: Sequence[bytes], suspect: bool) -> None:
        """Handle a complete session that has arrived. suspect: whether one of its parts is marked
        as suspect.
        """
        search = self._searches[client]
        assert search.decision is not None  # noqa: S101 - it is MOVING
        suspect |= search.decision.suspect
        decision = search.decision = search.decision._replace(suspect=suspect)
        search.stage = Stage.SETTLING
        self._working.begin(client)
        done = partial(self._on_disk, search, sum(map(len, parts)))
        self._holder.take(client, decision.epoch, decision.older, decision.suspect, parts, done)

    def lost(self, client: str) -> None:
        """Query all members again, because the member that has the session does not hand it over. A
        search that has lasted for PATIENCE_S fails instead.
        """
        search = self._searches[client]
        search.in_vain = True
        if self._contacts.now >= search.since + PATIENCE_S:
            self._fail(search, "the member that has the session does not hand it over")
            return
        self._start_over(search, search.turn)

    def refused(self, client: str, reason: str) -> None:
        """Fail a search because its session cannot move here. If the client does not want the
        session (Clean Start), query all members again instead, once.
        """
        search = self._searches[client]
        if search.clean and not search.in_vain:
            self.lost(client)
        else:
            self._fail(search, reason)

    def _on_disk(self, search: Search, size: int | None, problem: str | None) -> None:
        """Continue after a decision is on disk, or could not be written. size: bytes of a session
        that has moved here, or None. problem: why the session could not be written, or None.
        """
        self._working.finish(search.client)
        if problem is not None:
            search.stage = Stage.MOVING
            self.refused(search.client, problem)
        else:
            decision = search.decision
            if decision is not None:
                moved = decision.source not in (None, self._contacts.me)
                self._contacts.statistics.moved_in += moved
                self._ending.tell(search.client, decision.older)
            self._settled(search)
        if size is not None:
            self.inbound.settled(size)

    def _settled(self, search: Search) -> None:
        decision, statistics = search.decision, self._contacts.statistics
        if decision is None:
            return
        self._end(search)
        if search.silent:
            statistics.silent += 1
            for member in search.silent:
                statistics.by_member[member] = statistics.by_member.get(member, 0) + 1
        outcome = Outcome("here", decision.epoch, search.silent)
        if decision.source is None:
            outcome = outcome._replace(kind="none", suspect=decision.suspect)
        elif decision.suspect:
            outcome = outcome._replace(kind="doubt", twofold=search.twofold)
        for done, _ in search.waiters:
            done(outcome)

    def _fail(self, search: Search, reason: str) -> None:
        self._abandon(search)
        for done, _ in search.waiters:
            done(Outcome("failed", 0, search.silent, reason))

    def _abandon(self, search: Search) -> None:
        self._end(search)
        if search.suspects:
            self.trust.asked(search.client, search.suspects)

    def _end(self, search: Search) -> None:
        search.stage = Stage.OVER
        if self._searches.get(search.client) is search:
            del self._searches[search.client]
        later, search.later = search.later, []
        for go_on in later:
            go_on()

    def joined(self, member: str) -> None:
        """Send a member that has joined the queries of all session lookups in progress. The queries
        leave before the member gets a lease.
        """
        for search in list(self._searches.values()):
            if search.stage is Stage.ASKING:
                search.forget_reply(member)
            self._query(search, member)
        self._windows.close(member)

    def link_ended(self, member: str) -> None:
        """Drop the replies of a member whose link has ended."""
        for search in list(self._searches.values()):
            if search.stage is Stage.ASKING:
                search.forget_reply(member)
        for search in list(self._searches.values()):
            self._look(search)


def _stands(own: Held | None, decision: Decision) -> bool:
    """Whether this gateway's record fits the decision as it is. If the decision names members with
    an older session (`older`), the record never does: it gets a new epoch, so that an answer to an
    earlier Over message does not end the record (`ending.py`).
    """
    return not decision.older and (own is None or own.given_to is None)
