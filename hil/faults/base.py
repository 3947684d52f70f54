"""What every kind of fault has in common: how it stands in a bench, where its places are, how it is
carried out.

In: a `[[fault]]` table of a bench. Out: faults with places (for the plan), and one call that
carries a fault out and returns the evidence.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hil.faults.fault import Evidence, Fault
from hil.faults.under_test import SystemUnderTest

OF_ONE_GATEWAY = ("gateway", "uplink", "landing")
"""Parts of which each gateway of a site has its own."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Of a key."""

    name: str


Seconds = Annotated[float, Unit("s")]
Milliseconds = Annotated[int, Unit("ms")]
Bytes = Annotated[int, Unit("bytes")]
Shares = Annotated[tuple[float, float], Unit("shares of the run")]


class Kind(BaseModel, ABC):
    """One `[[fault]]` of a bench. The text below a key is what `onceway hil faults` says of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    text: ClassVar[str]
    part: ClassVar[str]
    """What it breaks: `board` or `line` (of each device), or a part of the site."""
    lane: ClassVar[str] = ""
    """If it may come while another fault of the part lasts; else the part is the lane."""
    counter: ClassVar[str] = "spooled"
    """The hop whose count is the place, for parts of the site; faults of devices are placed by the
    device's own readings."""
    looked: ClassVar[bool] = False
    """Whether the rig finds the place by looking at the counter, and the judge holds that against
    the rows of the system (hil/judge/places.py)."""
    needs_ingest: ClassVar[bool] = False
    """Whether it breaks the ingest, or leaves something that only the ingest mends."""

    on_real: ClassVar[bool] = False
    """Of a kind that breaks boards: whether a real one can be broken so, which has no cut at a
    counted point, and shows no inside."""

    bounded: ClassVar[bool] = False
    """Whether the run waits for it, once it has begun, when nothing else moves; it ends by itself.
    """
    needs_traffic: ClassVar[bool] = False
    """Whether it comes only while something is published: boards sample on until it has come."""
    machine_of: ClassVar[str | None] = None
    """The program under which it needs a machine that misbehaves (hil/faults/preload.py)."""

    air: ClassVar[Literal["no", "yes", "only"]] = "no"
    """Of a kind that breaks boards: whether it is for boards by radio."""

    gateways: ClassVar[Literal["any", "one", "several"]] = "any"
    """Whether it is for a run with one gateway alone, or for a site of several."""
    of_all: ClassVar[bool] = False
    """Of a kind for several gateways: whether it strikes all of them, or all clients."""

    no_place: ClassVar[str] = ""
    """Of a kind whose places nobody chooses: when it comes instead."""
    whole_run: ClassVar[bool] = False
    """Whether there is one of it, and it lasts from the beginning to the end."""

    kind: str
    count: int = Field(default=1, ge=1, le=10_000)
    """How many; of each board, if it breaks boards or their lines."""
    between: Shares = (0.05, 0.95)
    """Where they come."""
    on: list[str] = []
    """The boards or clients that it is for, or in a site of several the gateways; all, if none is
    named."""
    table: int = Field(default=1, ge=1)
    """Which of the tables of its kind; the bench counts them."""
    drawn: bool = False
    """By [nemesis]."""

    @property
    def of_device(self) -> bool:
        """Whether it breaks a device: then each has faults of its own, placed by its own
        readings.
        """
        return self.part in ("board", "line")

    def breaks(self, device: str) -> bool:
        return self.of_device and (not self.on or device in self.on)

    def planned(self, seed: int, readings: dict[str, int]) -> list[Fault]:
        """The faults that this table asks for; each table of a kind draws others."""
        mine = {name: total for name, total in readings.items() if self.breaks(name)}
        if self.table > 1:
            seed = random.Random(f"{seed}/table {self.table}").getrandbits(32)
        name = f"{self.kind}.{self.table}" if self.table > 1 else self.kind
        return [
            replace(fault, id=fault.id.replace(self.kind, name, 1), table=self.table)
            for fault in self.faults(seed, mine if self.of_device else readings)
        ]

    @classmethod
    def useless(cls) -> set[str]:
        """Keys that have no meaning for this kind."""
        keys = (("between", bool(cls.no_place)), ("count", cls.whole_run), ("on", cls.of_all))
        return {key for key, useless in keys if useless}

    @model_validator(mode="after")
    def _means_something(self) -> Self:
        for key in sorted(self.useless() & self.model_fields_set):
            # what stands in the record of a run has all keys; [nemesis] gives each kind a place
            if not self.drawn and getattr(self, key) != type(self).model_fields[key].default:
                why = self.no_place or "strikes all"
                raise ValueError(f"it {why}, so `{key}` has no meaning; leave it out")
        return self

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.between
        if not 0 <= low < high <= 1:
            raise ValueError(
                "between must be two shares of the run, the lower first, such as [0.1, 0.9]"
            )
        return self

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        """The faults that this table asks for, drawn from the seed. readings: planned, by device;
        for a part of the site also the messages of the clients.
        """
        if self.of_device:
            for device, total in readings.items():
                yield from self._on(
                    device,
                    f"{device} {self.lane or self.part}",
                    f"sampled {device}",
                    total - 2,
                    seed,
                    readings,
                )
        else:
            yield from self._on(
                self.part,
                self.lane or self.part,
                self.counter,
                sum(readings.values()),
                seed,
                readings,
            )

    def _on(
        self, target: str, lane: str, counter: str, total: int, seed: int, readings: dict[str, int]
    ) -> Iterator[Fault]:
        rng = random.Random(f"{seed}/{target}/{self.kind}")
        for number, at in self.places(rng, total):
            yield Fault(
                f"{target}/{self.kind}-{number}",
                self.kind,
                lane,
                self.text,
                counter,
                at,
                self.detail(rng, at, sum(readings.values())),
            )

    def places(self, rng: random.Random, total: int) -> Iterator[tuple[int, int]]:
        """Numbered places, one in each of `count` equal stretches of the run."""
        low, high = self.between
        for number in range(self.count):
            share = low + (high - low) * (number + rng.random()) / self.count
            yield number + 1, max(1, round(share * total))

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        """What else is drawn for a fault at this place. total: readings of the run."""
        return {}

    def impossible(self) -> str | None:
        """Why it cannot happen on this machine."""
        return None

    def aim(self, fault: Fault) -> dict[str, Any] | None:
        """Where exactly it must strike, in counts of what it breaks, for the judge to compare with
        where it did. None: it has no such place.
        """
        return None

    async def arm(self, fault: Fault, system: SystemUnderTest) -> bool:
        """Order it ahead, before anything samples. True: whoever was given the order finds its
        place, and `inject` waits for it. False: the injector waits for the place.
        """
        return False

    @abstractmethod
    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        """Carry it out; what is broken works again when this returns. None: it has not happened
        within its bound.
        """
