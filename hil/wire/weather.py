"""Faults of a line for a whole run. In: bytes of one direction. Out: arriving bytes, harms."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Harm:
    """A harm. offset: number of bytes sent before it. sent: the byte that was sent, None if it was
    inserted. arrived: the byte that arrived, None if it was lost. length: number of bytes harmed in
    a row; if it is above 1, `sent` and `arrived` are None.
    """

    offset: int
    kind: str
    sent: int | None = None
    arrived: int | None = None
    length: int = 1


class Weather(Protocol):
    """The faults of a line for a whole run. kinds: the kinds of harm that these faults do."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def feed(self, data: bytes, now: float) -> tuple[bytes, list[Harm]]:
        """Return the part of `data` that arrives, and the harms in it in order. now: seconds of a
        clock that never goes back.
        """
        ...
