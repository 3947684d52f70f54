"""The turn link's interface to a radio of any kind.

In: frames to send, the time. Out: events. Sans-IO, like the links: a radio at a port takes and
returns bytes, and the owner of the port transfers the bytes. The caller of `send` has checked the
duty cycle.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ready:
    """The radio is set up and listens. description: the description that the modem gives of
    itself.
    """

    description: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A received frame, of any station. at: time of its end, in seconds. rssi: dBm. snr: dB. None
    if the radio does not report the value.
    """

    frame: bytes
    at: float
    rssi: float | None = None
    snr: float | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The last frame was sent, or will never be sent."""

    at: float
    done: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The radio must be opened again before use. reason: the fault, and what to do."""

    reason: str


Event = Ready | Heard | Sent | Failed


class Radio(Protocol):
    """One radio. `now` is a monotonic clock in seconds. counts: numbers of invalid inputs from its
    port, and of its error messages. longest: largest frame that it sends, in bytes.
    """

    counts: Counter[str]
    longest: int

    def open(self, now: float) -> None:
        """Begin; `Ready` or `Failed` will follow."""

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes from the radio's port, split anywhere."""

    def tick(self, now: float) -> list[Event]:
        """Handle deadlines that have passed. Call this at `deadline`."""

    def take(self) -> bytes:
        """Return bytes to write to the radio's port now."""

    def send(self, frame: bytes, now: float) -> None:
        """Send a frame; `Sent` will follow. Raises RuntimeError if not `idle`."""

    def airtime(self, length: int) -> float:
        """Return the seconds on air of a frame of `length` bytes, including the bytes that the
        radio adds.
        """

    @property
    def idle(self) -> bool:
        """Whether the radio is ready, and sends nothing."""

    @property
    def deadline(self) -> float | None:
        """Time of the next call of `tick`."""
