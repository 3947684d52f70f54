"""Carrying out the plan: each fault waits for its place, breaks what it names, and enters the
history with the evidence that it happened.

In: a plan, kinds of faults, the run. Out: `happened` events. A fault that could not be carried out
has no such event, and the checker says so.
"""

from collections.abc import Sequence

from hil.bench.plan import Plan
from hil.faults import Fault, Kind
from hil.observe.history import COMMAND
from hil.run.system import System


class Injector:
    """Carries out one plan: announce it, then run every lane at once. awaited: how many faults are
    under way that end by themselves.
    """

    def __init__(self, plan: Plan, kinds: Sequence[Kind], system: System) -> None:
        self.lanes = plan.lanes()
        self.awaited = 0
        self._plan = plan
        self._kinds = {kind.kind: kind for kind in kinds}
        self._system = system

    def announce(self) -> None:
        """Enter the whole plan in the history, so that the checker can miss what does not
        happen.
        """
        for fault in self._plan.faults:
            self._system.history.add(
                "rig",
                "planned",
                fault=fault.id,
                kind=fault.text,
                counter=fault.counter,
                at=fault.at,
                detail=fault.detail,
            )
            if why := self._kinds[fault.kind].impossible():
                self._system.history.add("rig", "impossible", fault=fault.id, why=why)
                self._system.display.say(f"  {fault} cannot happen here: {why}", "red")

    async def run(self, lane: str) -> None:
        """The faults of a lane, one after the other."""
        for fault in self.lanes.get(lane, []):
            if self._kinds[fault.kind].impossible():
                continue
            await self._system.counters.reach(fault.counter, fault.at)
            await self._inject(fault)

    async def _inject(self, fault: Fault) -> None:
        kind = self._kinds[fault.kind]
        self.awaited += kind.bounded
        evidence = await kind.inject(fault, self._system)
        self.awaited -= kind.bounded
        if evidence is None:
            return
        self._system.history.add(
            fault.target,
            "happened",
            fault=fault.id,
            kind=fault.text,
            evidence=evidence.text,
            **evidence.data,
        )
        if fault.text == COMMAND:
            self._system.display.say(f"  → {fault}: {evidence.text}")
        else:
            self._system.display.fault(f"{fault}: {evidence.text}")
