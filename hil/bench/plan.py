"""The plan of a run, the same for the same bench and seed.

In: a bench. Out: the number of readings of each device, all faults, and the sections of
gateway.toml that name no port.

A place is a count at a hop (readings sampled, publications committed, appends), never a time, so
that a replay hits the same place.
"""

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.errors import OncewayError
from hil.bench.bench import Bench
from hil.faults import Fault
from hil.faults.base import OF_ONE_GATEWAY
from hil.observe.history import COMMAND, read

Sections = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run. readings: number of samples of each device. faults: all faults and all
    commands to the boards, in order of their ids.
    """

    seed: int
    readings: dict[str, int]
    faults: tuple[Fault, ...]

    def commands(self, device: str) -> int:
        """Return the number of commands to this device."""
        return sum(fault.text == COMMAND and fault.target == device for fault in self.faults)

    @property
    def breaks(self) -> int:
        """Return the number of faults, without commands."""
        return len(self.faults) - sum(map(self.commands, self.readings))

    def lanes(self) -> dict[str, list[Fault]]:
        """Return the faults by lane, in the order of their places."""
        lanes: dict[str, list[Fault]] = {}
        for fault in sorted(self.faults, key=lambda fault: fault.at):
            lanes.setdefault(fault.lane, []).append(fault)
        return lanes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(bench: Bench) -> Plan:
    """Return the plan of a bench. Its faults are drawn from the seed."""
    share, rest = divmod(bench.readings, len(bench.devices))
    readings = {device: share + (number < rest) for number, device in enumerate(bench.devices)}
    # readings and messages that will be in the store
    of_all = readings | {name: table.messages for name, table in bench.clients.items() if table.qos}
    faults = [
        fault
        for kind in bench.kinds
        for fault in kind.planned(
            bench.seed,
            {name: total for name, total in readings.items() if bench.may_break(kind, name)}
            if kind.of_device
            else of_all,
        )
    ]
    if bench.gateway:
        faults = [_where(fault, bench, list(of_all)) for fault in faults]
    return Plan(bench.seed, readings, tuple(sorted(faults, key=lambda fault: fault.id)))


def _where(fault: Fault, bench: Bench, publishers: list[str]) -> Fault:
    """Draw `where` of a fault that strikes one gateway. Draw from the gateways in `on`. If `on` is
    empty, draw a board or client: the fault then strikes the gateway that has this publisher when
    the fault happens.
    """
    if fault.target not in OF_ONE_GATEWAY:
        return fault
    on = next(k.on for k in bench.fault if (k.kind, k.table) == (fault.kind, fault.table))
    rng = random.Random(f"{bench.seed}/{fault.id}/where")
    return replace(fault, where=rng.choice(on or publishers))


def recorded(history: Path) -> tuple[Bench, Plan]:
    """Return bench and plan of a run, from its history. Raises OncewayError if the history does not
    begin with them.
    """
    first = next(read(history), None)
    if first is None or (first.hop, first.event) != ("rig", "run"):
        raise OncewayError("this history does not begin with a run", str(history))
    try:
        made = first.data["plan"]
        faults = tuple(Fault(**fault) for fault in made["faults"])
        return Bench.model_validate(first.data["bench"]), Plan(
            made["seed"], made["readings"], faults
        )
    except (KeyError, TypeError, ValidationError) as error:
        raise OncewayError(
            f"the run was recorded by another version ({error})", str(history)
        ) from error


def merged(
    config: Mapping[str, Mapping[str, Any]], readings: int, data: str, landing: str, listens: bool
) -> Sections:
    """Return the sections of gateway.toml: the rig's own, overridden by `config`. Batches are
    small, so that a run can break many of them. data: folder of the gateway. landing: URL of the
    landing zone. listens: whether programs connect over TCP.
    """
    sections: Sections = {
        "gateway": {"name": "site", "data": data, "trust_clock": True},
        "uplink": {
            "landing": landing,
            "batch_count": max(2, readings // 20),
            "batch_age_s": 2,
            "batch_bytes": 100_000,
            "retry_s": 2,
        },
    }
    if listens:
        sections["spool"] = {"topics": ["sensors/#"]}
    for name, settings in config.items():
        sections[name] = {**sections.get(name, {}), **settings}
    return sections
