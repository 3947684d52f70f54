"""The boundary between links and service: one MQTT Network Connection as bytes.

In, from the link: bytes received, and the news that the connection is gone. Out, from the broker: bytes to send, or a wish to close.
TCP, TLS, WebSocket and the reliable link all offer this and nothing more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Who greeted on a reliable link: the first two parts of publication identity, and the next sequence it will use."""

    name: str
    incarnation: int
    next_sequence: int


@dataclass(frozen=True, slots=True)
class Peer:
    """The far end of a connection. address: for logs, e.g. `127.0.0.1:40312` or `/dev/ttyUSB0`.

    device: who greeted on a reliable link. certificate_name: common name of the certificate that a TLS client has proved to own.
    """

    listener: str
    address: str
    device: DeviceIdentity | None = None
    certificate_name: str | None = None


class Carrier(Protocol):
    """What a link offers to the broker side."""

    peer: Peer

    high_water: int
    """Once `unsent` is above it, stop writing until `Receiver.writable`."""

    def write(self, data: bytes) -> None:
        """Queue bytes to send; never blocks."""

    def close(self) -> None:
        """Send what is queued, then close. `Receiver.lost` is not called for a close asked for here."""

    def abort(self) -> None:
        """Close at once; queued bytes may be lost."""

    def pause_reading(self) -> None:
        """Take no more bytes from the peer until `resume_reading`."""

    def resume_reading(self) -> None: ...

    @property
    def unsent(self) -> int:
        """Bytes written and not yet handed to the operating system or acknowledged by the link."""


class Receiver(Protocol):
    """What the broker side offers to a link."""

    def receive(self, data: bytes) -> None: ...

    def lost(self, reason: str) -> None: ...

    def writable(self) -> None:
        """`unsent` was above the high-water mark and has fallen to a fraction of it."""


Accept = Callable[[Carrier], Receiver]
