"""A planned fault, and the evidence that it happened."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """A planned fault. id: `TARGET/KIND-NUMBER`, or `TARGET/KIND.TABLE-NUMBER` of a later table of
    its kind. lane: faults of one lane come one after the other. text: for a person. counter, at:
    its place, a count at a hop. detail: values drawn besides its place. where: the gateway of a
    site that it strikes, or a board or client, for the gateway that has it then.
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
    """Evidence of a fault. text: for a person. window: that of the kind (hil/judge/coverage.py) in
    which it fell. data: the measurements. `hit` is where it struck, with the keys of the kind's
    `aim`, `over` the same counts at its end, and `behind` the fault that it had to wait for.
    """

    text: str
    data: dict[str, Any] = field(default_factory=dict)
    window: str | None = None
