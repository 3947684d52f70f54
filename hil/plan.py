"""The plan of faults. In: a bench. Out: every fault of the run with its place, the same for the same bench and seed.

A place is a count at a hop (readings sampled, rows committed, batches cut), never a time, so that a replay hits the same place.
"""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from hil.bench import Bench

SLOT_WRITES = 20  # EEPROM writes from one reading to the next, about: a cut after up to as many may tear a slot
PUBLISH_BYTES = 40  # a PUBLISH frame is longer: a cut after fewer bytes sent falls into the exchange
NOISE, CUT, CUT_IN_EXCHANGE, KILL_GATEWAY, KILL_UPLINK, KILL_INGEST, OUTAGE, REPEAT = (
    "line noise",
    "power cut",
    "power cut in an exchange",
    "kill -9 of the gateway",
    "kill -9 of the uplink",
    "kill -9 of the ingest in a micro-batch",
    "landing place unwritable",
    "batch landed twice",
)
"""Kinds of faults, as a person reads them."""

CUTS = (CUT, CUT_IN_EXCHANGE)
INGEST_STEPS = ("data files written", "appended")


@dataclass(frozen=True, slots=True)
class Fault:
    """kind: what a person reads. counter, at: the place, see hil/README.md. detail: what else the injector needs."""

    id: str
    kind: str
    counter: str
    at: int
    detail: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.id} ({self.kind})"


@dataclass(frozen=True, slots=True)
class Plan:
    """readings: to be sampled, by device. noise: share of bytes. faults: in order of their id."""

    seed: int
    readings: dict[str, int]
    noise: float
    faults: tuple[Fault, ...]

    def of(self, target: str, *kinds: str) -> list[Fault]:
        """The faults of these kinds (all, if none is named) of a target (`uno-1`, `gateway` …), in order of their places."""
        chosen = (fault for fault in self.faults if fault.id.startswith(f"{target}/") and (not kinds or fault.kind in kinds))
        return sorted(chosen, key=lambda fault: fault.at)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(bench: Bench) -> Plan:
    """Draw the faults of a bench from its seed."""
    devices = [f"uno-{number}" for number in range(1, bench.boards + 1)]
    share, rest = divmod(bench.readings, bench.boards)
    readings = {device: share + (index < rest) for index, device in enumerate(devices)}
    faults = bench.faults
    made: list[Fault] = []
    for device in devices:
        if faults.noise:
            made.append(Fault(f"{device}/noise", NOISE, f"harmed {device}", 0))
        made += _board_cuts(
            random.Random(f"{bench.seed}/{device}"), device, readings[device], faults.board_cuts, faults.board_cuts_in_exchange
        )
    rng = random.Random(f"{bench.seed}/site")
    for number, at in _places(rng, faults.gateway_kills, 0.05, 0.95, bench.readings):
        made.append(Fault(f"gateway/kill-{number}", KILL_GATEWAY, "spooled", at))
    for number, at in _places(rng, faults.landing_outages, 0.2, 0.5, bench.readings):
        length = max(2, round(bench.readings * rng.uniform(0.1, 0.2)))
        made.append(Fault(f"landing/outage-{number}", OUTAGE, "spooled", at, {"until": min(at + length, bench.readings)}))
    for number, at in _places(rng, faults.repeated_batches, 0.1, 0.5, bench.readings):
        made.append(Fault(f"landing/repeat-{number}", REPEAT, "landed", at))
    for number, at in _places(rng, faults.uplink_kills, 0.6, 0.9, bench.readings):
        made.append(Fault(f"uplink/kill-{number}", KILL_UPLINK, "spooled", at))
    for number in range(1, faults.ingest_kills + 1):
        step = rng.choice(INGEST_STEPS)
        made.append(
            Fault(
                f"ingest/kill-{number}",
                KILL_INGEST,
                "appends",
                rng.randint(0, min(2, bench.readings // 150)),
                {"step": step},
            )
        )
    return Plan(bench.seed, readings, faults.noise, tuple(sorted(made, key=lambda fault: fault.id)))


def _board_cuts(rng: random.Random, device: str, readings: int, cuts: int, in_exchange: int) -> Iterator[Fault]:
    chosen = set(rng.sample(range(1, cuts + 1), in_exchange))
    for number, at in _places(rng, cuts, 0.05, 0.95, readings - 2):
        if number in chosen:
            yield Fault(f"{device}/cut-{number}", CUT_IN_EXCHANGE, f"sampled {device}", at, {"after_tx": rng.randint(1, PUBLISH_BYTES)})
        else:
            yield Fault(
                f"{device}/cut-{number}",
                CUT,
                f"sampled {device}",
                at,
                {"after_eeprom": rng.randint(1, SLOT_WRITES), "torn": rng.random() < 0.5},
            )


def _places(rng: random.Random, count: int, low: float, high: float, total: int) -> Iterator[tuple[int, int]]:
    """Numbered places between the shares `low` and `high` of `total`, one in each of `count` equal stretches."""
    for number in range(count):
        share = low + (high - low) * (number + rng.random()) / count
        yield number + 1, max(1, round(share * total))
