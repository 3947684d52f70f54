"""Carries out the plan: each fault waits for its place, breaks its target, and is recorded in the
history with its evidence. In: a plan, kinds of faults, the run. Out: `happened` events. The checker
reports a fault without this event.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from hil.bench.plan import Plan
from hil.faults import Fault, Kind
from hil.observe.history import COMMAND
from hil.run.system import System


class Injector:
    """Carries out one plan. Call `announce`, then `arm`, then `run` for all lanes at the same time.
    awaited: number of faults in progress that end by themselves. waiting_for_traffic: number of
    faults that have not happened yet and need publications.
    """

    def __init__(self, plan: Plan, kinds: Sequence[Kind], system: System) -> None:
        self.lanes = plan.lanes()
        self.awaited = 0
        self._plan = plan
        self._kinds = {(kind.kind, kind.table): kind for kind in kinds}
        self.waiting_for_traffic = sum(
            self._kind(fault).needs_traffic
            for fault in plan.faults
            if not self._kind(fault).impossible()
        )
        self._system = system
        self._armed: set[str] = set()

    def _kind(self, fault: Fault) -> Kind:
        return self._kinds[fault.kind, fault.table]

    def announce(self) -> None:
        """Record the plan in the history, so that the judge can notice missing faults."""
        for fault in self._plan.faults:
            self._system.history.add(
                "rig",
                "planned",
                fault=fault.id,
                kind=fault.text,
                counter=fault.counter,
                at=fault.at,
                detail=fault.detail,
                aim=self._aim(fault),
                looked=self._kind(fault).looked,
                whole_run=self._kind(fault).whole_run,
            )
            if why := self._kind(fault).impossible():
                self._system.history.add("rig", "impossible", fault=fault.id, why=why)
                self._system.display.say(f"  {fault} cannot happen here: {why}", "red")

    def _aim(self, fault: Fault) -> dict[str, Any] | None:
        """Return the exact place of the fault; None for a board without counts (`counted`)."""
        kind = self._kind(fault)
        if kind.part == "board" and not self._system.device(fault).counted:
            return None
        return kind.aim(fault)

    async def arm(self) -> None:
        """Give the orders that can be given before the first sample of any board."""
        for lane in self.lanes.values():
            for fault in lane:
                kind = self._kind(fault)
                if not kind.impossible() and await kind.arm(fault, self._system.at(fault)):
                    self._armed.add(fault.id)

    async def run(self, lane: str) -> None:
        """Run the faults of a lane. A fault that `arm` has ordered in advance happens when its
        receiver reaches the fault's place, even while another fault of the lane is in progress. The
        other faults happen one after the other.
        """
        faults = [fault for fault in self.lanes.get(lane, []) if not self._kind(fault).impossible()]
        async with asyncio.TaskGroup() as ahead:
            for fault in faults:
                if fault.id in self._armed:
                    ahead.create_task(self._inject(fault))
            for fault in faults:
                if fault.id not in self._armed:
                    await self._system.counters.reach(fault.counter, fault.at)
                    await self._inject(fault)

    async def _inject(self, fault: Fault) -> None:
        kind = self._kind(fault)
        self.awaited += kind.bounded
        since = {"since": self._system.look()} if kind.looked else {}
        evidence = await kind.inject(fault, self._system.at(fault))
        self.awaited -= kind.bounded
        self.waiting_for_traffic -= kind.needs_traffic
        if evidence is None:
            return
        self._system.history.add(
            fault.target,
            "happened",
            fault=fault.id,
            kind=fault.text,
            evidence=evidence.text,
            window=evidence.window,
            **{**since, **evidence.data},
        )
        if fault.text == COMMAND:
            self._system.display.say(f"  → {fault}: {evidence.text}")
        else:
            self._system.display.fault(f"{fault}: {evidence.text}")
