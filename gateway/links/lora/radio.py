"""What the turn link asks of a radio, whichever part it is.

In: frames to send, the time. Out: events. Sans-IO, as the links are: a radio behind a port takes
and gives bytes, and whoever owns the port moves them. Duty cycle is not its business: who calls
`send` has asked the ledger.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ready:
    """It is set up and listens. told: what it says it is."""

    told: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A frame, of anybody. at: when it was whole. rssi: dBm. snr: dB. None where it does not
    tell.
    """

    frame: bytes
    at: float
    rssi: float | None = None
    snr: float | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The frame that was given to it has left; or it has not, and was not on the air."""

    at: float
    done: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """It is of no use until it is opened again. reason: what is wrong, and what to do."""

    reason: str


Event = Ready | Heard | Sent | Failed


class Radio(Protocol):
    """One radio. `now` is a monotonic clock in seconds.

    counts: what came from its port and made no sense, and what it complained of. longest: bytes of
    a frame that it sends.
    """

    counts: Counter[str]
    longest: int

    def open(self, now: float) -> None:
        """Begin: `Ready` or `Failed` will follow."""

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes from its port, split anywhere."""

    def tick(self, now: float) -> list[Event]:
        """Let time pass; to be called at `deadline`."""

    def take(self) -> bytes:
        """Return what is to be written to its port now."""

    def send(self, frame: bytes, now: float) -> None:
        """Send a frame; `Sent` will follow. Raises RuntimeError: not `idle`."""

    def airtime(self, length: int) -> float:
        """Return the seconds on air of a frame of `length` bytes, with what the radio adds."""

    @property
    def idle(self) -> bool:
        """It is ready, and sends nothing."""

    @property
    def deadline(self) -> float | None:
        """When `tick` is next needed."""
