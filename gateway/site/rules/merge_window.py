"""Merge window: queries for one member that follow the first one within 30 ms are sent in the same
call.

In: queries, each with its `Asker`. Out: Ask frames; the replies go to the askers.
"""

from collections import deque
from typing import NamedTuple, Protocol

from gateway.site.errors import SiteError
from gateway.site.rules.contacts import Contacts
from gateway.site.rules.messages import Answer, Ask, Query, Reply, portions

WINDOW_S = 0.03
FULL = 4096
"""Number of queries at which a window is sent without waiting."""
_UNANSWERED = 256
"""Largest number of unanswered calls that are remembered for each member; the askers of older calls
have given up.
"""


class Asker(Protocol):
    def on_reply(self, member: str, number: int, reply: Reply) -> None:
        """Handle a reply. number: the one given with the query."""


class _Pending(NamedTuple):
    question: Query
    asker: Asker
    number: int


class _Call:
    """An Ask that is not fully answered. answered: number of answered queries."""

    __slots__ = ("answered", "pending")

    def __init__(self, pending: list[_Pending]) -> None:
        self.pending = pending
        self.answered = 0


class Windows:
    def __init__(self, contacts: Contacts) -> None:
        self._contacts = contacts
        self._open: dict[str, list[_Pending]] = {}
        self._closes: deque[tuple[float, str]] = deque()
        """Closing times of windows, in order; a window that was sent early is removed."""
        self._calls: dict[str, dict[int, _Call]] = {name: {} for name in contacts}
        self._number = 0

    def ask(self, member: str, question: Query, asker: Asker, number: int) -> None:
        window = self._open.get(member)
        if window is None:
            window = self._open[member] = []
            self._closes.append((self._contacts.now + WINDOW_S, member))
        window.append(_Pending(question, asker, number))
        self._contacts.statistics.asked += 1
        if len(window) >= FULL:
            self.close(member)

    def close(self, member: str) -> None:
        """Send the pending queries for a member."""
        pending = self._open.pop(member, [])
        self._closes = deque(item for item in self._closes if item[1] != member)
        calls, begin = self._calls[member], 0
        for questions in portions(item.question for item in pending):
            self._number = (self._number + 1) & 0xFFFF_FFFF
            calls[self._number] = _Call(pending[begin : begin + len(questions)])
            begin += len(questions)
            self._contacts.say(member, Ask(self._number, questions), call=True)
        while len(calls) > _UNANSWERED:
            del calls[next(iter(calls))]

    def on_answer(self, member: str, answer: Answer) -> None:
        """Hand out replies, each once; replies to forgotten calls are dropped."""
        call = self._calls[member].get(answer.number)
        if call is None:
            return
        end = answer.first + len(answer.replies)
        if answer.first != call.answered or end > len(call.pending):
            raise SiteError("an answer without a query", member)
        self._contacts[member].answered(self._contacts.now)
        call.answered = end
        if end == len(call.pending):
            del self._calls[member][answer.number]
        for item, reply in zip(call.pending[answer.first : end], answer.replies, strict=True):
            item.asker.on_reply(member, item.number, reply)

    def link_ended(self, member: str) -> None:
        self._open.pop(member, None)
        self._closes = deque(item for item in self._closes if item[1] != member)
        self._calls[member].clear()

    @property
    def deadline(self) -> float | None:
        return self._closes[0][0] if self._closes else None

    def advance(self) -> None:
        while self._closes and self._closes[0][0] <= self._contacts.now:
            self.close(self._closes[0][1])
