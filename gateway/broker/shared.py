"""Shared subscriptions (MQTT 5, section 4.8.2): each message goes to one member.

Rules: members take turns; one that is connected goes before one that is not; when nobody is
connected, a session that outlives its connection keeps the message; a member's granted QoS holds
for what it gets [MQTT-4.8.2-3]; a member that may not read the topic has no turn, nor has one whose
queue is full while another has room. Another gateway, with the members that it has, has
a turn while no member here is connected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.broker.session import Session
    from gateway.broker.subscription import Subscription


class Share:
    """The members of one `$share/name/filter`, in the order in which they take turns."""

    __slots__ = ("members", "name", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Session, Subscription] = {}
        self.turn = 0

    @property
    def qos(self) -> int:
        """The highest QoS granted to a member."""
        return max(item.qos for item in self.members.values())

    def in_turn(
        self, eligible: Callable[[Session], bool], *, connected: bool
    ) -> list[tuple[Session, Subscription]]:
        """Those of the members that are eligible, the one whose turn it is first. connected: only
        who is; else only those that are not, and whose session keeps what it gets.
        """
        found = [
            pair
            for pair in self.members.items()
            if (pair[0].connection is not None if connected else _keeps(pair[0]))
            and eligible(pair[0])
        ]
        if here := [pair for pair in found if not pair[0].foreign]:
            found = here
        first = self.turn % len(found) if found else 0
        return found[first:] + found[:first]


def _keeps(session: Session) -> bool:
    return session.connection is None and session.durable
