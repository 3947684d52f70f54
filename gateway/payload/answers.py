"""Answers of boards to commands (`firmware/src/ow_answer.h`).

In: the payload of a publication on `logs/NAME`. Out: the board's answer, and the command that it
belongs to.
"""

from dataclasses import dataclass
from enum import StrEnum
from struct import Struct

CORRELATION = 3
"""Largest number of bytes of Correlation Data that a board can return."""

_LAYOUT = Struct(">B3si")


class Kind(StrEnum):
    DONE = "done"
    VALUE = "value"
    REFUSED = "refused"


_KINDS = {1: Kind.DONE, 2: Kind.VALUE, 3: Kind.REFUSED}
_REASONS = {
    1: "the board does not know this command",
    2: "the number is too small or too large",
    3: "this board, or its firmware, cannot do this",
    4: "the board cannot do this now: try again later",
    5: "it would wear the board's memory out within a year; add `force` to do it anyway",
}
"""Reasons by number, as in `enum ow_refusal` of `firmware/src/Onceway.h`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A board's answer to a command. number: the value for VALUE, the reason for REFUSED.
    correlation: the command's Correlation Data.
    """

    kind: Kind
    number: int
    correlation: bytes

    @property
    def words(self) -> str:
        """Text of the answer: the value, `done`, or the reason for the refusal."""
        match self.kind:
            case Kind.VALUE:
                return str(self.number)
            case Kind.REFUSED:
                unknown = f"reason {self.number} of the board's own program"
                return f"refused: {_REASONS.get(self.number, unknown)}"
            case Kind.DONE:
                return "done"


def read(payload: bytes) -> Answer | None:
    """Return the answer in a payload, or None if the payload is not an answer."""
    if len(payload) != _LAYOUT.size:
        return None
    head, correlation, number = _LAYOUT.unpack(payload)
    kind, length = _KINDS.get(head >> 4), head & 15
    if kind is None or length > CORRELATION:
        return None
    return Answer(kind, number, correlation[:length])
