"""The boundary between links and broker: one MQTT Network Connection as bytes.

In, from the link: received bytes, and the news that the connection is gone. Out, from the broker:
bytes to send, or a request to close. TCP, TLS, WebSocket and the reliable link all implement
exactly this interface.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from gateway.access.peer import Peer


class Transport(Protocol):
    """The connection to a peer, as the broker uses it: bytes out, pauses, and the end."""

    peer: Peer

    high_water: int
    """Number of `unsent` bytes above which the broker stops writing, until `Receiver.writable` is
    called.
    """

    def write(self, data: bytes) -> None:
        """Queue bytes to send, without blocking. After `close` or `abort`, drop the bytes."""

    def close(self) -> None:
        """Send queued bytes, then close. `Receiver.lost` is not called after this request."""

    def abort(self) -> None:
        """Close at once; queued bytes may be lost."""

    def pause_reading(self) -> None:
        """Take no more bytes from the peer until `resume_reading`."""

    def resume_reading(self) -> None: ...

    @property
    def unsent(self) -> int:
        """Number of written bytes that the transport still keeps: TCP keeps them until the
        operating system accepts them, the reliable link until the peer acknowledges them.
        """

    @property
    def undelivered(self) -> int:
        """Number of written bytes that have not reached the peer's machine, including those in the
        operating system. May take a system call.
        """


@runtime_checkable
class Lingering(Protocol):
    """A transport that can close in order while its peer is still sending. If unread bytes remain,
    TCP closes with a reset, which may destroy the last bytes sent to the peer.
    """

    def linger(self) -> None:
        """Send queued bytes, read and discard the peer's bytes for a moment, then close."""


class Receiver(Protocol):
    """A protocol (asyncio's sense): the broker's side of a connection."""

    def receive(self, data: bytes) -> None: ...

    def lost(self, reason: str) -> None: ...

    def writable(self) -> None:
        """Continue to write: `unsent` was above the transport's `high_water`, and is now well below
        it.
        """


Accept = Callable[[Transport], Receiver]
