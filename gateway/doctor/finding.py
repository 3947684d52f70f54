"""What a check says."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How things stand with one part."""

    OK = "ok"
    WARNING = "warning"
    """Works today."""
    WRONG = "wrong"
    UNSEEN = "unseen"
    """This account, or this machine, does not let us look."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about one part."""

    part: str
    state: State
    what: str
    """Without a full stop."""
    todo: str | None = None
    """What a person can type or do; None where nothing is to be done."""


def ok(part: str, what: str) -> Finding:
    return Finding(part, State.OK, what)


def warning(part: str, what: str, todo: str) -> Finding:
    return Finding(part, State.WARNING, what, todo)


def wrong(part: str, what: str, todo: str) -> Finding:
    return Finding(part, State.WRONG, what, todo)


def unseen(part: str, what: str, todo: str | None = None) -> Finding:
    return Finding(part, State.UNSEEN, what, todo)
