"""The turn link's interface to a radio of any kind.

In: frames to send, the time. Out: events. Sans-IO, as the links are: a radio behind a port takes
and returns bytes, and the owner of the port moves them. The caller of `send` has checked the duty
cycle.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ready:
    """The radio is set up and listens. description: of the modem, by itself."""

    description: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A received frame, of any station. at: time of its end. rssi: dBm. snr: dB. None if the radio
    does not report them.
    """

    frame: bytes
    at: float
    rssi: float | None = None
    snr: float | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The last frame has left; or it was not sent at all."""

    at: float
    done: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The radio must be opened again before use. reason: the fault, and what to do."""

    reason: str


Event = Ready | Heard | Sent | Failed


class Radio(Protocol):
    """One radio. `now` is a monotonic clock in seconds. counts: invalid input from its port, and
    its error messages. longest: most bytes of a frame that it sends.
    """

    counts: Counter[str]
    longest: int

    def open(self, now: float) -> None:
        """Begin; `Ready` or `Failed` will follow."""

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes from the radio's port, split anywhere."""

    def tick(self, now: float) -> list[Event]:
        """Act on the passing of time; to be called at `deadline`."""

    def take(self) -> bytes:
        """Return bytes to write to its port now."""

    def send(self, frame: bytes, now: float) -> None:
        """Send a frame; `Sent` will follow. Raises RuntimeError if not `idle`."""

    def airtime(self, length: int) -> float:
        """Return the seconds on air of a frame of `length` bytes, with what the radio adds."""

    @property
    def idle(self) -> bool:
        """Whether the radio is ready, and sends nothing."""

    @property
    def deadline(self) -> float | None:
        """Time of the next call of `tick`."""
