"""Whether what is here of a client is the newest.

It is as long as each other member has given us a lease (`contact.py`), and none has asked for this
client since we last decided about it: who asks is about to have it.

In: leases, and who asks. Out: members that may know better.
"""

from gateway.site.contacts import Contacts
from gateway.site.holder import NOBODY, Held


class Trust:
    def __init__(self, contacts: Contacts) -> None:
        self._contacts = contacts
        self._asked: dict[str, frozenset[str]] = {}
        """By client, of which something is here."""

    def asked(self, client: str, *members: str) -> None:
        """These members are about to decide about this client."""
        self._asked[client] = self._asked.get(client, NOBODY).union(members)

    def has_asked(self, client: str, member: str) -> bool:
        return member in self._asked.get(client, NOBODY)

    def settled(self, client: str) -> frozenset[str]:
        """We have decided, or hold nothing any more. Returns who had asked."""
        return self._asked.pop(client, NOBODY)

    def unsure(self, client: str, now: float) -> frozenset[str]:
        """Who may know better."""
        asked = self._asked.get(client, NOBODY)
        without = [contact.name for contact in self._contacts.values() if contact.lease <= now]
        return asked.union(without) if without else asked

    def is_newest(self, client: str, held: Held | None, now: float) -> bool:
        """Whether the client may go on here without a word to anybody."""
        return (
            held is not None
            and held.session
            and held.given_to is None
            and not held.doubtful
            and not self.unsure(client, now)
        )
