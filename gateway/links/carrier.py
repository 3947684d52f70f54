"""The boundary between links and service: one MQTT Network Connection as bytes.

In, from the link: bytes received, and the news that the connection is gone. Out, from the broker:
bytes to send, or a wish to close. TCP, TLS, WebSocket and the reliable link all offer this and
nothing more.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from gateway.broker.peer import Peer


class Carrier(Protocol):
    """What a link offers to the broker side."""

    peer: Peer

    high_water: int
    """Once `unsent` is above it, stop writing until `Receiver.writable`."""

    def write(self, data: bytes) -> None:
        """Queue bytes to send; never blocks. After `close` or `abort`: nothing."""

    def close(self) -> None:
        """Send what is queued, then close. `Receiver.lost` is not called for a close asked for
        here.
        """

    def abort(self) -> None:
        """Close at once; queued bytes may be lost."""

    def pause_reading(self) -> None:
        """Take no more bytes from the peer until `resume_reading`."""

    def resume_reading(self) -> None: ...

    @property
    def unsent(self) -> int:
        """Bytes written and not yet handed to the operating system or acknowledged by the link."""

    @property
    def undelivered(self) -> int:
        """Bytes written that have not reached the peer's machine, with those that the operating
        system holds. It may cost a system call.
        """


@runtime_checkable
class Lingering(Protocol):
    """A carrier that can close while its peer goes on sending. TCP answers unread bytes with a
    reset, and a reset may take the last bytes to the peer with it.
    """

    def linger(self) -> None:
        """Close as `close` does, but read and discard the peer's bytes for a moment before."""


class Receiver(Protocol):
    """What the broker side offers to a link."""

    def receive(self, data: bytes) -> None: ...

    def lost(self, reason: str) -> None: ...

    def writable(self) -> None:
        """`unsent` was above the high-water mark and has fallen to a fraction of it."""


Accept = Callable[[Carrier], Receiver]
