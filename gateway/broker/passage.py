"""Another gateway of the site, as a session of this broker: what its subscribers are to get waits
in the queue of that session, and what it passes on comes in over its connection.

In: packet identifiers of what comes. Out: which of them have come before. The other gateway sends
in the order of its numbers, and never gives a number twice, so the highest one that was taken tells
all. It is kept as a mark, in the commit that holds the message; another queue over there has
another mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.message_ids import IDENTIFIERS, packet_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.broker.marks import Mark


class Passage:
    __slots__ = ("latest", "mark", "member", "shares")

    def __init__(self, member: str, shares: Mapping[int, str]) -> None:
        self.member = member
        """Its name."""
        self.mark: Mark | None = None
        """Of the queue over there that is connected; None before that is known."""
        self.latest = 0
        """The number of the latest message that was under way when what came last was sent. All
        that is under way are within 65,535 of it, so it tells the number behind an identifier."""
        self.shares = shares
        """Shared subscriptions here, by the Subscription Identifier that stands for each."""

    def number(self, identifier: int) -> int:
        return self.latest - (packet_id(self.latest) - identifier) % IDENTIFIERS

    def taken(self, identifier: int) -> bool:
        return self.mark is not None and self.number(identifier) <= self.mark.highest

    def repeated(self, identifiers: tuple[int, ...]) -> int:
        """How many of these have come before: they are in order, so it is the first ones."""
        count = 0
        while count < len(identifiers) and self.taken(identifiers[count]):
            count += 1
        return count
