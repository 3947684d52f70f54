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
    """Event: the radio is set up and listens. description: the modem's description of itself."""

    description: str


@dataclass(frozen=True, slots=True)
class Heard:
    """Event: a frame of any station was received. at: time of its end, in seconds. rssi: dBm. snr:
    dB. None if the radio does not report the value.
    """

    frame: bytes
    at: float
    rssi: float | None = None
    snr: float | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """Event: the radio has finished with the last frame. at: time in seconds. done: whether the
    frame was sent; if False, it will never be sent.
    """

    at: float
    done: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """Event: the radio does not work until it is opened again. reason: the fault, and what to
    do.
    """

    reason: str


Event = Ready | Heard | Sent | Failed


class Radio(Protocol):
    """One radio. `now` is a monotonic clock in seconds. counts: number of invalid inputs from the
    radio's port, and of the radio's error messages, by kind. longest: largest frame that the radio
    sends, in bytes.
    """

    counts: Counter[str]
    longest: int

    def open(self, now: float) -> None:
        """Begin to set up the radio. `Ready` or `Failed` will follow."""

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Handle bytes from the radio's port, which may begin and end anywhere. Return the
        events.
        """

    def tick(self, now: float) -> list[Event]:
        """Handle deadlines that have passed, and return the events. Call this at `deadline`."""

    def take(self) -> bytes:
        """Return the queued bytes to write to the radio's port, and empty the queue."""

    def send(self, frame: bytes, now: float) -> None:
        """Send a frame; `Sent` will follow. Raises RuntimeError if not `idle`."""

    def airtime(self, length: int) -> float:
        """Return the airtime in seconds of a frame of `length` bytes, including the bytes that the
        radio adds.
        """

    @property
    def idle(self) -> bool:
        """Whether the radio is ready and is not sending."""

    @property
    def deadline(self) -> float | None:
        """Time of the next call of `tick`; None if no call is needed."""
