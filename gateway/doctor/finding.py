"""The result of a check."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of one part of the gateway."""

    OK = "ok"
    WARNING = "warning"
    """The part works today, but will soon fail."""
    WRONG = "wrong"
    UNSEEN = "unseen"
    """The part cannot be checked by this account or on this machine."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about one part of the gateway, and its remedy."""

    part: str
    state: State
    what: str  # prose: JSON key
    """The sentence about the part, without a full stop."""
    todo: str | None = None
    """The remedy: a command, or something to do. None if nothing is to be done."""


def ok(part: str, text: str) -> Finding:
    return Finding(part, State.OK, text)


def warning(part: str, text: str, todo: str) -> Finding:
    return Finding(part, State.WARNING, text, todo)


def wrong(part: str, text: str, todo: str) -> Finding:
    return Finding(part, State.WRONG, text, todo)


def unseen(part: str, text: str, todo: str | None = None) -> Finding:
    return Finding(part, State.UNSEEN, text, todo)
