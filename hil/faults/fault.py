"""One planned fault, and the evidence that it happened."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault. id: `TARGET/KIND-NUMBER`, or `TARGET/KIND.TABLE-NUMBER` of a later table
    of its kind. lane: faults of one lane come one after the other. text: what a person reads.
    counter, at: its place, a count at a hop. detail: what was drawn for it beside its place.
    where: in a site of several gateways, the one that it strikes; or a board or client, and it
    strikes the one at which that is then.
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
        """A device (`uno-1`), or a part of the site (`gateway`)."""
        return self.id.partition("/")[0]

    def __str__(self) -> str:
        return f"{self.id} ({self.text})"


@dataclass(frozen=True, slots=True)
class Evidence:
    """How we know that a fault happened. text: for a person. data: what was measured; `hit` is
    where it struck, in the words of the kind's `aim`, `over` the same counts when it was over,
    and `behind` the fault that it had to wait for. window: the one of the kind's
    (hil/judge/coverage.py) that it fell into.
    """

    text: str
    data: dict[str, Any] = field(default_factory=dict)
    window: str | None = None
