"""Random schedules: faults of any kind at any place, drawn from the seed. In: a `[nemesis]` section
of a bench. Out: `[[fault]]` tables with one fault each, planned like all other tables, so that a
run can be replayed and shrunk.
"""

import random
from collections.abc import Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from hil.faults import KINDS, AnyKind, Kind, OfExchange

SWEEPS = {name for name, kind in KINDS.items() if issubclass(kind, get_args(OfExchange))}
NEEDS_ROOT = {"gateway-power-cut", "landing-power-cut", "centre-power-cut"}
NEEDS_SUBSCRIBER = {"gateway-kill-at-release"}
NEEDS_BRIDGE = {"other-broker-restart"}
NO_CLIENTS = {"gateway-restored"}
"""Kinds that suit only benches without clients, in which all boards have a radio."""
NO_KILLS = {"number-taken"}
"""Kinds after which a bench must not kill the gateway. At its next start it would forget its
sessions, and boards and clients would publish messages in flight again.
"""
BEYOND = (
    NO_CLIENTS
    | NO_KILLS
    | NEEDS_BRIDGE
    | {name for name, kind in KINDS.items() if kind.gateways == "several" or kind.sensors}
)
NEEDS_AIR = {name for name, kind in KINDS.items() if kind.air == "only"}
ONE_A_LINE = {"line-noise", "line-bursts", "line-trace"}
"""Kinds of faults that last for the whole run. A line gets at most one fault of each kind."""
MUST_SAY: dict[str, dict[str, Any]] = {
    "line-noise": {"rate": 0.002},
    "line-trace": {"trace": "bursts"},
}
"""Values in a drawn fault for the keys that have no default, by kind of fault."""
_WIDTH = 0.001  # width of the range `between` of a drawn fault, as a share of the run

_table: TypeAdapter[Kind] = TypeAdapter(AnyKind)


class Nemesis(BaseModel):
    """Random faults. rate: faults per reading. between: range of their places, as shares of the
    run. kinds: kinds to draw from. "all" leaves out sweeps (hil/faults/sweep.py), kinds that need
    root, a subscriber, a bridge, radio boards, a sensor or several gateways, and kinds after which
    the gateway must not be restarted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: Literal["all"] | list[str] = "all"
    rate: float = Field(gt=0, le=1)
    between: tuple[float, float] = (0.05, 0.95)

    @field_validator("kinds", mode="before")
    @classmethod
    def _all_or_some(cls, kinds: object) -> object:
        listed = isinstance(kinds, list) and all(isinstance(name, str) for name in kinds)
        if not listed and kinds != "all":
            raise ValueError('write "all", or a list of kinds such as ["gateway-kill"]')
        return kinds

    @field_validator("kinds")
    @classmethod
    def _known(cls, kinds: str | list[str]) -> str | list[str]:
        for name in kinds if isinstance(kinds, list) else ():
            if name not in KINDS or name in SWEEPS:
                known = ", ".join(sorted(KINDS.keys() - SWEEPS))
                raise ValueError(f"there is no kind {name!r} to draw; there are {known}")
        return kinds

    def tables(
        self, seed: int, readings: int, simulated: Sequence[str], ingest: bool
    ) -> list[Kind]:
        """Draw the `[[fault]]` tables. simulated: the simulated boards; only these get faults of
        boards and lines. ingest: whether the bench has an ingest.
        """
        rng = random.Random(f"{seed}/nemesis")
        names = (
            sorted(KINDS.keys() - SWEEPS - NEEDS_ROOT - NEEDS_SUBSCRIBER - NEEDS_AIR - BEYOND)
            if self.kinds == "all"
            else self.kinds
        )
        names = [
            name
            for name in names
            if (ingest or not KINDS[name].needs_ingest)
            and (simulated or KINDS[name].part not in ("board", "line"))
        ]
        if not names:
            raise ValueError(
                "none of the nemesis's kinds can be drawn: this bench lacks the parts that they"
                " break"
            )
        low, high = self.between
        made: list[Kind] = []
        used: set[tuple[str, str]] = set()
        for _ in range(max(1, round(self.rate * readings))):
            name = rng.choice(names)
            share = rng.uniform(low, high - _WIDTH)
            table: dict[str, Any] = {"kind": name, "between": (share, share + _WIDTH)}
            if KINDS[name].part in ("board", "line"):
                table["on"] = [board := rng.choice(simulated)]
                if name in ONE_A_LINE and (name, board) in used:
                    continue
                used.add((name, board))
            made.append(_table.validate_python({**table, **MUST_SAY.get(name, {}), "drawn": True}))
        return made
