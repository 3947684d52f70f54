"""Common parts of all kinds of faults: table in a bench, places, and how they happen. In: a
`[[fault]]` table of a bench. Out: faults with places (for the plan), and one call that causes a
fault and returns the evidence.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hil.faults.fault import Evidence, Fault
from hil.faults.preload import Machine
from hil.faults.under_test import SystemUnderTest

OF_ONE_GATEWAY = ("gateway", "uplink", "landing")
"""Parts that each gateway of a site has."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of a key in a `[[fault]]` table."""

    name: str


Seconds = Annotated[float, Unit("s")]
Milliseconds = Annotated[int, Unit("ms")]
Bytes = Annotated[int, Unit("bytes")]
Shares = Annotated[tuple[float, float], Unit("shares of the run")]


class Kind(BaseModel, ABC):
    """A `[[fault]]` table of a bench. `onceway hil faults` shows the docstrings of the kinds and of
    their keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    text: ClassVar[str]
    part: ClassVar[str]
    """The part that breaks: a device's `board` or `line`, or a part of the site."""
    lane: ClassVar[str] = ""
    """Lane of the kind's faults. Faults of one lane happen one after the other, unless they were
    ordered in advance (`arm`). Faults of different lanes may overlap. By default, the lane is the
    broken part.
    """
    counter: ClassVar[str] = "spooled"
    """For kinds that break a part of the site: name of the counter whose value is a fault's place.
    For a fault of a device, the place is a count of the device's own readings.
    """
    looked: ClassVar[bool] = False
    """Whether the rig finds the place by watching the counter. If so, the judge checks the place by
    the rows that the system had when the fault happened (hil/judge/places.py).
    """
    needs_ingest: ClassVar[bool] = False
    """Whether the fault breaks the ingest, or causes damage that only the ingest repairs."""

    on_real: ClassVar[bool] = False
    """For kinds that break boards: whether a real board can have the fault. A real board cannot be
    cut at a counted point, and shows no internal state.
    """

    bounded: ClassVar[bool] = False
    """Whether the fault ends by itself. The run then waits for its end, even without progress."""
    needs_traffic: ClassVar[bool] = False
    """Whether the fault needs traffic to happen: boards sample until it has happened."""
    machine_of: ClassVar[str | None] = None
    """Program that must run on a simulated faulty machine for this fault (hil/faults/preload.py).
    """

    air: ClassVar[Literal["no", "yes", "only"]] = "no"
    """For kinds that break boards: whether the fault is for boards on a serial line (`no`), for
    radio boards, too (`yes`), or only for radio boards (`only`)."""

    sensors: ClassVar[frozenset[str]] = frozenset()
    """For kinds that break a sensor: the kinds of sensors that can have the fault."""

    gateways: ClassVar[Literal["any", "one", "several"]] = "any"
    """Runs that the fault is for: with one gateway, with several (a site), or with any number."""
    of_all: ClassVar[bool] = False
    """For faults of a site: whether one fault strikes all gateways or clients at once."""

    no_place: ClassVar[str] = ""
    """For kinds without a chosen place: words that say when the fault happens instead."""
    whole_run: ClassVar[bool] = False
    """Whether the fault lasts for the whole run. Its table then has no key `count`."""

    kind: str
    count: int = Field(default=1, ge=1, le=10_000)
    """Number of faults. A fault of boards or of their lines happens this often to each board."""
    between: Shares = (0.05, 0.95)
    """Part of the run in which the faults happen: two shares, from 0 (its start) to 1 (its end)."""
    on: list[str] = []
    """Names of the boards, clients or gateways that these faults strike; all by default."""
    table: int = Field(default=1, ge=1)
    """Number of this table among the bench's tables of the same kind. The bench sets it."""
    drawn: bool = False
    """Whether [nemesis] drew the fault."""

    @property
    def of_device(self) -> bool:
        """Whether the fault breaks a device. Each device then has its own faults, whose places are
        counts of its own readings.
        """
        return self.part in ("board", "line")

    def breaks(self, device: str) -> bool:
        return self.of_device and (not self.on or device in self.on)

    def planned(self, seed: int, readings: dict[str, int]) -> list[Fault]:
        """Return the faults of this table, drawn from the seed. Two tables of one kind draw
        different faults. readings: planned number of readings, by device.
        """
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
        """Return the keys of a fault's table that have no meaning for this kind."""
        keys = (("between", bool(cls.no_place)), ("count", cls.whole_run), ("on", cls.of_all))
        return {key for key, useless in keys if useless}

    @model_validator(mode="after")
    def _means_something(self) -> Self:
        for key in sorted(self.useless() & self.model_fields_set):
            # the record of a run has all keys; [nemesis] gives each kind a place
            if not self.drawn and getattr(self, key) != type(self).model_fields[key].default:
                why = self.no_place or "strikes all gateways or clients at once"
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
        """Yield the faults of this table, drawn from the seed. readings: planned readings of each
        device. If the fault breaks no device, also the planned messages of each client.
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
        """Yield number and place of each fault. `between` is divided into `count` equal parts, and
        each fault gets a random place in its part. total: highest possible place.
        """
        low, high = self.between
        for number in range(self.count):
            share = low + (high - low) * (number + rng.random()) / self.count
            yield number + 1, max(1, round(share * total))

    def detail(self, rng: random.Random, at: int, total: int) -> dict[str, Any]:
        """Draw and return the values of a fault other than its place. at: its place. total: planned
        readings of all devices; if the fault breaks no device, also planned messages of clients.
        """
        return {}

    def impossible(self) -> str | None:
        """Return the reason why the fault is impossible on this machine, or None."""
        return None

    def prepare(self, machine: Machine) -> None:
        """Change the machine before the program on it starts for the first time."""

    def aim(self, fault: Fault) -> dict[str, Any] | None:
        """Return the exact place of the fault, as the broken part counts it; None if the fault has
        no such place. The judge compares this place with the one at which the fault happened.
        """
        return None

    async def arm(self, fault: Fault, system: SystemUnderTest) -> bool:
        """Order the fault before the first sample of any board. Return True if the receiver of the
        order causes the fault at the fault's place; `inject` then waits for this. Return False if
        the injector must wait for the place before it calls `inject`.
        """
        return False

    @abstractmethod
    async def inject(self, fault: Fault, system: SystemUnderTest) -> Evidence | None:
        """Cause the fault, and return the evidence when the broken part works again. Return None if
        the fault has not happened within its bound.
        """
