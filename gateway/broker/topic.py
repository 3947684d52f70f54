"""Topics and subscriptions, as the router and the runs of publications know them."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.topics import SHARE_PREFIX
from gateway.mqtt.wire import encode_varint

NOTICES = f"{SHARE_PREFIX}onceway/journeys"
"""Topic of the gateways' messages about sessions that move. The name looks like a shared
subscription, so no client can publish or subscribe to it."""


class Topic:
    __slots__ = ("indexed", "name", "refused", "shapes", "spooled", "stale", "wire")

    def __init__(self, name: str, wire: bytes) -> None:
        self.name = name
        self.wire = wire
        """The name in its encoded form, with its length in front."""
        self.shapes: dict[tuple[int, bool, int], tuple[bytes, bytes]] = {}
        """Cached results of `PublishRun.shape`, by first byte, MQTT 5 or not, and payload size."""
        self.indexed = False
        """Whether the router marks the topic as stale when its routes change."""
        self.stale = True
        """Whether routes, `spooled` and `refused` are outdated after a change of subscriptions."""
        self.spooled = False
        """Whether messages of the topic are spooled for the uplink."""
        self.refused: ReasonCode | None = None
        """Reason why messages of the topic are refused, or None."""


@dataclass(frozen=True, slots=True)
class Subscription:
    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    """Subscription Identifier, 0 for none."""

    @classmethod
    def stored(cls, topic_filter: str, options: int, identifier: int) -> Subscription:
        """Return a subscription from its row in the store."""
        return cls(topic_filter, options & 3, bool(options & 4), bool(options & 8), identifier)

    @property
    def options(self) -> int:
        """The options as one number, as in `SubscriptionRow`."""
        return self.qos | self.no_local << 2 | self.retain_as_published << 3

    @property
    def extra(self) -> bytes:
        """The Subscription Identifier as an encoded property, empty without one."""
        return b"\x0b" + encode_varint(self.identifier) if self.identifier else b""
