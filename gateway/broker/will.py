"""Will messages (MQTT 5, section 3.1.2.5).

Rules: a will is published when the connection ends other than by DISCONNECT with reason 0
[MQTT-3.1.2-8, MQTT-3.14.4-3]. A delay postpones the will, at most until the session ends. A new
connection of the client within the delay cancels the will [MQTT-3.1.3-9].

A power cut of the gateway ends all connections: wills are in the store and are due at the next
start. All wills together have a bound in bytes. If a will exceeds the bound, or the disk has no
room, the CONNECT is refused with 0x97. A will that is refused when it is due stays in the store,
and is tried again every second.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gateway.broker.store_rows import WillRow
from gateway.system.usage import Origin

_OVERHEAD = 256
"""Overhead of a will in addition to its contents, in bytes."""


@dataclass(frozen=True, slots=True)
class StoredWill:
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes = b""
    """Encoded properties, without the property length."""
    delay: int = 0
    """Will Delay Interval in seconds."""
    expiry: int | None = None
    """Message Expiry Interval in seconds, None for none."""
    due: float | None = None
    """Time to publish the will, on the time axis; None while the client is connected."""
    origin: Origin | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        """Size in bytes, as counted against bounds."""
        return len(self.payload) + len(self.topic) + len(self.properties) + _OVERHEAD

    def at(self, due: float) -> StoredWill:
        return replace(self, due=due)

    def row(self, client: str) -> WillRow:
        due = None if self.due is None else int(self.due * 1000)
        return (
            client,
            due,
            self.delay,
            self.topic,
            self.qos,
            int(self.retain),
            self.properties,
            self.expiry,
            self.payload,
        )
