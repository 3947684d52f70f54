"""The result of a check."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of one part."""

    OK = "ok"
    WARNING = "warning"
    """The part works today, but will soon fail."""
    WRONG = "wrong"
    UNSEEN = "unseen"
    """The part cannot be checked by this account or on this machine."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about one part."""

    part: str
    state: State
    what: str
    """The sentence, without a full stop."""
    todo: str | None = None
    """The remedy: a command, or something to do. None if nothing is to be done."""


def ok(part: str, what: str) -> Finding:
    return Finding(part, State.OK, what)


def warning(part: str, what: str, todo: str) -> Finding:
    return Finding(part, State.WARNING, what, todo)


def wrong(part: str, what: str, todo: str) -> Finding:
    return Finding(part, State.WRONG, what, todo)


def unseen(part: str, what: str, todo: str | None = None) -> Finding:
    return Finding(part, State.UNSEEN, what, todo)
