"""The check whether a client's session here is the newest.

The session is certainly the newest if two conditions hold. Each other member has given this member
a lease (`contacts.py`). No member has asked for this client since this member's last decision about
the client: a member that asks is about to get the session.

In: leases, and queries. Out: members that may have a newer session.

While a commit for a client is in progress (`Working`), the contents of the disk are uncertain. So
nothing is answered or decided about this client until the commit is done.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gateway.site.rules.contacts import Contacts
from gateway.site.rules.holder import NOBODY, Held, Holder


class Working(dict[str, int]):
    """The number of commits in progress for each client, and the functions to call at their end."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def begin(self, client: str) -> None:
        self[client] = self.get(client, 0) + 1

    def finish(self, client: str) -> None:
        """Note that a commit of a client has ended. If it was the client's last one in progress,
        call the functions that wait for this client.
        """
        self[client] -= 1
        if not self[client]:
            del self[client]
            for go_on in self._waiting.pop(client, ()):
                go_on()

    def wait(self, client: str, go_on: Callable[[], None]) -> None:
        self._waiting.setdefault(client, []).append(go_on)


KEPT_S = 60.0
"""Seconds for which queries about a client without a record are remembered. This is longer than a
CONNECT waits: when the CONNECT is answered, this gateway may get a record, and the queries must
still be known at that time.
"""
_FEW = 256


class _Mark(NamedTuple):
    members: frozenset[str]
    since: float


_NO_MARK = _Mark(NOBODY, 0.0)


class Trust:
    def __init__(self, contacts: Contacts, holder: Holder) -> None:
        self._contacts = contacts
        self._holder = holder
        self._marks: dict[str, _Mark] = {}
        """The members that have asked about a client since the last decision about it, by client.
        """
        self._full = _FEW
        """Number of entries in `_marks` at which outdated ones are deleted."""

    def asked(self, client: str, members: Iterable[str]) -> None:
        """Note that these members are about to decide about this client."""
        now = self._contacts.now
        before = self._marks.get(client, _NO_MARK).members
        self._marks[client] = _Mark(before.union(members), now)
        if len(self._marks) >= self._full:
            for key, mark in list(self._marks.items()):
                if mark.since + KEPT_S < now and self._holder.record(key) is None:
                    del self._marks[key]
            self._full = 2 * len(self._marks) + _FEW

    def has_asked(self, client: str, member: str) -> bool:
        return member in self._marks.get(client, _NO_MARK).members

    def settled(self, client: str) -> frozenset[str]:
        """Forget which members have asked about this client, because a decision was made or the
        client has no record any more. Return these members.
        """
        return self._marks.pop(client, _NO_MARK).members

    def unsure(self, client: str) -> frozenset[str]:
        """Return the members at which the client may have a newer session: those that have asked
        for the client, and those that have given no valid lease.
        """
        asked = self._marks.get(client, _NO_MARK).members
        without = [
            contact.name
            for contact in self._contacts.values()
            if contact.lease <= self._contacts.now
        ]
        return asked.union(without) if without else asked

    def is_newest(self, client: str, record: Held | None) -> bool:
        """Whether this member has the newest session of a client for certain. If so, the client may
        continue here without a message to other members.
        """
        return (
            record is not None
            and record.session
            and record.given_to is None
            and not record.suspect
            and not self.unsure(client)
        )
