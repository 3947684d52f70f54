"""The client through which a bridge uses the broker of this gateway."""

from __future__ import annotations

from collections.abc import Callable

from gateway.bridge.far import FarConnection
from gateway.bridge.gate import Gate
from gateway.bridge.translate import MARK_BYTES
from gateway.broker.session import NEVER
from gateway.config import INSIDE, BridgeSection
from gateway.mqtt.packets import Connect, Packet
from gateway.mqtt.properties import Properties, PropertyId
from gateway.runtime.engine import Engine
from gateway.runtime.internal_client import Client


class NearClient(Client):
    """The client through which a bridge uses the broker of this gateway. far: connection to the
    other broker, None if there is none. hello: additional properties of the CONNECT.
    """

    def __init__(
        self, engine: Engine, section: BridgeSection, far: FarConnection | None, hello: Properties
    ) -> None:
        self.on_packets: Callable[[list[Packet]], None] = lambda packets: None
        self.ended: Callable[[], None] = lambda: None
        self.gate: Gate | None = None
        """The gate at which packets for the other broker may wait; None before the exchange begins.
        """
        self._far = far
        self.high_water = FarConnection.high_water
        connect = Connect(
            section.client,
            clean_start=False,
            properties={PropertyId.SESSION_EXPIRY_INTERVAL: NEVER} | hello,
        )
        most = engine.broker.limits.packet_bytes + MARK_BYTES
        super().__init__(engine, f"bridge {section.name}", INSIDE, self._one, connect, most)

    def _one(self, packet: Packet | None) -> None:
        if packet is None:
            self.ended()

    def write(self, data: bytes) -> None:
        self._stream.feed(data)
        self.on_packets(list(self._stream))

    def take(self, packets: list[Packet]) -> None:
        """Hand packets of the other broker to our broker. Do not call this from a callback of our
        broker.
        """
        if packets:
            self._receive(*packets)

    def drained(self) -> None:
        if self._receiver is not None:
            self._receiver.writable()

    def pause_reading(self) -> None:
        if self._far is not None:
            self._far.pause_reading()

    def resume_reading(self) -> None:
        if self._far is not None:
            self._far.resume_reading()

    @property
    def unsent(self) -> int:
        waiting = 0 if self.gate is None else self.gate.size
        return waiting + (0 if self._far is None else self._far.unsent)
