"""Merge window: queries for one member within 30 ms of the first one are sent in the same call.

In: queries, each with its `Asker`. Out: Ask frames; the replies with their askers.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from gateway.site.errors import SiteError
from gateway.site.rules.contacts import Contacts
from gateway.site.rules.messages import Answer, Ask, Query, Reply, portions

WINDOW_S = 0.03
FULL = 4096
"""Number of queries at which a merge window ends early, and its queries are sent."""
_UNANSWERED = 256
"""Largest number of unanswered calls (Ask frames) that are remembered for each member. Older calls
are forgotten, because their askers have given up.
"""


Asker = Callable[[str, Reply], None]
"""Function that handles a reply of a member."""


class _Pending(NamedTuple):
    question: Query
    asker: Asker


class _Call:
    """A sent Ask message, kept until all of its queries are answered. answered: number of answered
    queries.
    """

    __slots__ = ("answered", "pending")

    def __init__(self, pending: list[_Pending]) -> None:
        self.pending = pending
        self.answered = 0


class Windows:
    def __init__(self, contacts: Contacts) -> None:
        self._contacts = contacts
        self._open: dict[str, list[_Pending]] = {}
        self._calls: dict[str, dict[int, _Call]] = {name: {} for name in contacts}
        self._number = 0

    def ask(self, member: str, question: Query, asker: Asker) -> None:
        window = self._open.get(member)
        if window is None:
            window = self._open[member] = []
            closes = self._contacts.now + WINDOW_S
            self._contacts.plan(closes, partial(self._close, member, window))
        window.append(_Pending(question, asker))
        self._contacts.statistics.asked += 1
        if len(window) >= FULL:
            self._close(member, window)

    def close(self, member: str) -> None:
        """Send the waiting queries for a member now."""
        if member in self._open:
            self._close(member, self._open[member])

    def _close(self, member: str, pending: list[_Pending]) -> None:
        if self._open.get(member) is not pending:  # the queries were sent early
            return
        del self._open[member]
        calls, begin = self._calls[member], 0
        for questions in portions(item.question for item in pending):
            self._number = (self._number + 1) & 0xFFFF_FFFF
            calls[self._number] = _Call(pending[begin : begin + len(questions)])
            begin += len(questions)
            self._contacts.say(member, Ask(self._number, questions), call=True)
        while len(calls) > _UNANSWERED:
            del calls[next(iter(calls))]

    def answered(self, member: str, answer: Answer) -> Iterable[tuple[Asker, Reply]]:
        """Return each reply with the asker of its query. Replies to forgotten calls are dropped.
        Raises SiteError for replies without a query.
        """
        call = self._calls[member].get(answer.number)
        if call is None:
            return ()
        end = answer.first + len(answer.replies)
        if answer.first != call.answered or end > len(call.pending):
            raise SiteError("an answer without a query", member)
        self._contacts[member].answered(self._contacts.now)
        call.answered = end
        if end == len(call.pending):
            del self._calls[member][answer.number]
        askers = [item.asker for item in call.pending[answer.first : end]]
        return zip(askers, answer.replies, strict=True)

    def link_ended(self, member: str) -> None:
        self._open.pop(member, None)
        self._calls[member].clear()
