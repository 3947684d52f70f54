"""A Topic Name and what is known about it.

In: the name, checked. Out: its bytes in packets, and the heads of packets that were built for it.
"""

from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SHARE_PREFIX

NOTICES = f"{SHARE_PREFIX}onceway/journeys"
"""What gateways tell one another of sessions that move. The name stands for shared subscriptions,
so no client can publish on it or subscribe to it."""


class Topic:
    __slots__ = ("indexed", "name", "refused", "shapes", "spooled", "stale", "wire")

    def __init__(self, name: str, wire: bytes) -> None:
        self.name = name
        self.wire = wire
        """The name as it stands in packets, its length in front."""
        self.shapes: dict[tuple[int, bool, int], tuple[bytes, bytes]] = {}
        """Heads of PUBLISH packets, by first byte, version and payload size."""
        self.indexed = False
        """The router says when its routes change."""
        self.stale = True
        """They have changed: what follows, and where its messages go, is no longer true."""
        self.spooled = False
        """Its messages go up to the landing place."""
        self.refused: ReasonCode | None = None
        """Why no message of it is taken."""
