"""Replies of this gateway to session lookups.

In: queries of other members. Out: the replies to each call (Ask), once the records that they state
are on disk: a power cut must not make a NO false. Replies are sent only over the link of their
call. A member with a new link asks again.
"""

from collections.abc import Callable
from functools import partial

from gateway.site.rules.contacts import Contacts
from gateway.site.rules.holder import ALL_CLIENTS, Holder
from gateway.site.rules.lookup import Lookup
from gateway.site.rules.messages import Answer, Ask, Kind, Query, Reply, portions
from gateway.site.rules.search import is_live
from gateway.site.rules.trust import Trust, Working

MOST_PENDING = 65_536
"""Largest number of queries of one member that may wait for the disk. A call (Ask) that would
exceed it gets no answer.
"""
NO = Reply(Kind.NO)
BUSY = Reply(Kind.BUSY)
RELEASED = Reply(Kind.RELEASED)
NO_OF_A_RESTORED = Reply(Kind.CLAIM, restored=True)


class Replies:
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
        self._pending = dict.fromkeys(contacts, 0)
        """For each member, number of its queries whose replies wait until a change is on disk."""

    def on_ask(self, member: str, ask: Ask) -> None:
        replies: list[Reply] = [NO] * len(ask.questions)
        remaining = len(ask.questions)
        if self._pending[member] + remaining > MOST_PENDING:
            self._refuse_to_say(member, ask)
            return
        self._pending[member] += remaining
        contact = self._contacts[member]
        link = contact.links

        def put(place: int, reply: Reply) -> None:
            nonlocal remaining
            replies[place] = reply
            remaining -= 1
            if remaining == 0:
                self._holder.on_disk(answer)

        def answer() -> None:
            self._pending[member] -= len(replies)
            if contact.links != link:
                return
            first = 0
            for portion in portions(replies):
                self._contacts.say(member, Answer(ask.number, first, portion))
                first += len(portion)

        for place, question in enumerate(ask.questions):
            if question.identifier:
                self._release(member, question, partial(put, place))
            else:
                put(place, self._reply(member, question.client))

    def _refuse_to_say(self, member: str, ask: Ask) -> None:
        """Leave a call (Ask) unanswered. The member will count this gateway as silent, and decide
        about the clients without it. So note that the member has asked about those clients that
        have a record here.
        """
        for client, identifier in ask.questions:
            if not identifier and self._holder.record(client) is not None:
                self._trust.asked(client, (member,))

    def _reply(self, member: str, client: str) -> Reply:
        record = self._holder.record(client)
        busy = not self._lookup.yields(client, member)
        if busy or record is not None:
            self._trust.asked(client, (member,))
        if busy:
            return BUSY
        restored = self._holder.record(ALL_CLIENTS) is not None
        if record is None:
            return NO_OF_A_RESTORED if restored else NO
        return Reply(
            Kind.CLAIM,
            record.epoch,
            record.session,
            record.suspect,
            self._contacts.place(record.given_to),
            self._contacts.mask(record.older),
            record.copied,
            restored,
        )

    def _release(self, member: str, question: Query, put: Callable[[Reply], None]) -> None:
        """Release an identifier for a member. Reply NO if the session here has ended, or if it has
        replaced the member's session: the identifier may stand for another message by now. Reply
        BUSY while a decision about the client is in progress.
        """
        client, identifier = question
        record = self._holder.record(client)
        if self._lookup.is_deciding(client):
            put(BUSY)
        elif record is None or not is_live(record) or member in record.older:
            put(NO)
        else:
            self._working.begin(client)
            self._holder.release(client, identifier, partial(self._released, client, put))

    def _released(self, client: str, put: Callable[[Reply], None], known: bool) -> None:
        self._working.finish(client)
        put(RELEASED if known else NO)
