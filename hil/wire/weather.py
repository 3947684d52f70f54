"""Faults of a line for a whole run. In: bytes of one direction. Out: arriving bytes, harms."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Harm:
    """A harm. offset: bytes sent before it. sent: None for an inserted byte. arrived: None for a
    lost one. length: bytes harmed in a row; above 1, both are None.
    """

    offset: int
    kind: str
    sent: int | None = None
    arrived: int | None = None
    length: int = 1


class Weather(Protocol):
    """The faults of a line for a whole run. kinds: names of its kinds of harm."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def feed(self, data: bytes, now: float) -> tuple[bytes, list[Harm]]:
        """Return the part of `data` that arrives, and the harms in it in order. now: seconds of a
        clock that never goes back.
        """
        ...
