"""A planned fault, and the evidence that it happened."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """A planned fault. id: `TARGET/KIND-NUMBER`, or `TARGET/KIND.TABLE-NUMBER` for a later table of
    its kind. lane: faults of one lane happen one after the other. text: description for people.
    counter, at: its place: name and value of a count. detail: further values, drawn at random.
    where: the gateway of a site that the fault strikes, or a board or client whose gateway it
    strikes.
    """

    id: str
    kind: str
    lane: str
    text: str
    counter: str
    at: int
    detail: dict[str, Any] = field(default_factory=dict)
    table: int = 1
    where: str = ""

    @property
    def target(self) -> str:
        """Return the target: a device (`uno-1`), or a part of the site (`gateway`)."""
        return self.id.partition("/")[0]

    def __str__(self) -> str:
        return f"{self.id} ({self.text})"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence of a fault. text: description for people. window: the window of the kind
    (hil/judge/coverage.py) in which the fault happened. data: the measurements. In `data`, `hit` is
    the place of the fault, with the keys of the kind's `aim`; `over` is the place of its end, with
    the same keys; `behind` names an earlier fault for which it had to wait.
    """

    text: str
    data: dict[str, Any] = field(default_factory=dict)
    window: str | None = None
