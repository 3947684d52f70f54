"""Whether what is here of a client is the newest.

It is as long as each other member has given us a lease (`contact.py`), and none has asked for this
client since we last decided about it: who asks is about to have it.

In: leases, and who asks. Out: members that may know better.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gateway.site.rules.contacts import Contacts
from gateway.site.rules.holder import NOBODY, Held, Holder

KEPT_S = 60.0
"""So long it is known who asked for a client of which nothing is here: longer than its CONNECT
waits, after which something may be."""
_FEW = 256


class _Mark(NamedTuple):
    members: frozenset[str]
    since: float


class Trust:
    def __init__(self, contacts: Contacts, holder: Holder) -> None:
        self._contacts = contacts
        self._holder = holder
        self._marks: dict[str, _Mark] = {}
        """Who has asked, by client."""
        self._full = _FEW
        """With so many, those that mean nothing are looked for."""

    def asked(self, client: str, members: Iterable[str]) -> None:
        """These members are about to decide about this client."""
        now = self._contacts.now
        self._marks[client] = _Mark(self._asked(client).union(members), now)
        if len(self._marks) >= self._full:
            for key, mark in list(self._marks.items()):
                if mark.since + KEPT_S < now and self._holder.held(key) is None:
                    del self._marks[key]
            self._full = 2 * len(self._marks) + _FEW

    def _asked(self, client: str) -> frozenset[str]:
        mark = self._marks.get(client)
        return NOBODY if mark is None else mark.members

    def has_asked(self, client: str, member: str) -> bool:
        return member in self._asked(client)

    def settled(self, client: str) -> frozenset[str]:
        """We have decided, or hold nothing any more. Returns who had asked."""
        mark = self._marks.pop(client, None)
        return NOBODY if mark is None else mark.members

    def unsure(self, client: str) -> frozenset[str]:
        """Who may know better."""
        asked = self._asked(client)
        without = [
            contact.name
            for contact in self._contacts.values()
            if contact.lease <= self._contacts.now
        ]
        return asked.union(without) if without else asked

    def is_newest(self, client: str, held: Held | None) -> bool:
        """Whether the client may go on here without a word to anybody."""
        return (
            held is not None
            and held.session
            and held.given_to is None
            and not held.doubtful
            and not self.unsure(client)
        )
