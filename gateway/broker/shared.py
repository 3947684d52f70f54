"""Shared subscriptions (MQTT 5, section 4.8.2): each message goes to one member.

Rules: members take turns; one that is connected goes before one that is not; when nobody is
connected, a session that outlives its connection keeps the message; a member's granted QoS holds
for what it gets [MQTT-4.8.2-3]; a member that may not read the topic has no turn, nor has one whose
queue is full while another has room.
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

    def deal(
        self, count: int, eligible: Callable[[Session], bool]
    ) -> list[tuple[Session, Subscription, int]]:
        """Who gets how many of the next `count` messages, of those that are eligible. Empty when
        nobody can have them.
        """
        readers = [pair for pair in self.members.items() if eligible(pair[0])]
        members = [pair for pair in readers if pair[0].connection is not None]
        if not members:
            members = [pair for pair in readers if pair[0].durable]
        if not members:
            return []
        dealt = []
        for index in range(min(count, len(members))):
            session, subscription = members[(self.turn + index) % len(members)]
            dealt.append(
                (session, subscription, count // len(members) + (index < count % len(members)))
            )
        self.turn += count
        return dealt
