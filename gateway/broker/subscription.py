"""What a session has subscribed to."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.mqtt.wire import encode_varint


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
        """From its row in the store."""
        return cls(topic_filter, options & 3, bool(options & 4), bool(options & 8), identifier)

    @property
    def options(self) -> int:
        """As its row in the store has them."""
        return self.qos | self.no_local << 2 | self.retain_as_published << 3

    @property
    def extra(self) -> bytes:
        """The Subscription Identifier as an encoded property, empty without one."""
        return b"\x0b" + encode_varint(self.identifier) if self.identifier else b""
