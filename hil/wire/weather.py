"""What harms a line for a whole run. In: the bytes of one direction. Out: the bytes that arrive,
and what was done to them.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Harm:
    """offset: count of bytes sent before it. sent is None for an inserted byte, arrived is None for
    a lost one. length: bytes harmed in a row; of more than one, neither is told.
    """

    offset: int
    kind: str
    sent: int | None = None
    arrived: int | None = None
    length: int = 1


class Weather(Protocol):
    """kinds: of the harms that it does."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def feed(self, data: bytes, now: float) -> tuple[bytes, list[Harm]]:
        """Return what arrives of `data`, and the harms among it in order. now: seconds of a clock
        that never goes back.
        """
        ...
