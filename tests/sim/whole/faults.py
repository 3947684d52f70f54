"""The faults of a run. In: a world, and a plan. Out: the faults, each at its time, and events in
the history by which the judge knows them.
"""

from functools import partial
from typing import Any

from hil.judge.links import RESTORED
from hil.judge.silences import FOR_EVER
from tests.sim.whole.gateway import Gateway
from tests.sim.whole.plan import Fault, Plan
from tests.sim.whole.world import World

KILLED, SLOW, FAILS = "kill -9 of the gateway", "slow fsync", "disk full"
CUT_OFF = "gateways cut off from each other"
"""The judge's name of this fault (`hil/judge/silences.py`)."""
_QUICK_S = 0.1
"""If commits may take longer than this time, in seconds, the slow disk is a fault in the history. A
gateway waits one second for another gateway.
"""


class Faults:
    """The part of a run that carries out the faults of a plan."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._told = 0
        self._off_s: dict[str, float] = {}
        """Time, by gateway, that passes between its death and its next start, in seconds."""
        self._spans: dict[tuple[str, str], int] = {}
        """Start of each fault in progress in ns, by kind and gateway."""
        for gateway in world.gateways.values():
            gateway.died = self._died
        world.mending = self._mending
        self._copies = {name: one.database.serialize() for name, one in world.gateways.items()}
        for fault in plan.faults:
            world.time.at(fault.at, partial(self._arm, fault))

    def _arm(self, fault: Fault) -> None:
        strike = partial(getattr(self, fault.do), *fault.what)
        if fault.step:
            self._world.on_step(fault.board, fault.step, fault.count, strike)
        else:
            strike()

    def _begin(self, kind: str, gateway: str) -> None:
        self._spans.setdefault((kind, gateway), self._world.time.ns)

    def _end(self, kind: str, gateway: str) -> None:
        """End a fault. Like the rig, write a fault into the history only at its end."""
        if (since := self._spans.pop((kind, gateway), None)) is not None:
            self._tell(kind, since=since)

    def _mending(self) -> None:
        """End all faults that are in progress, and drop those that wait for their step."""
        for gateway in self._world.gateways.values():
            gateway.die_at(0, None)
            gateway.start()
        for board in self._world.boards.values():
            board.cut_at(0, 0, 0)
        for kind, name in list(self._spans):
            self._end(kind, name)

    def _tell(self, kind: str, **data: Any) -> None:
        self._told += 1
        name = f"fault-{self._told}"
        self._world.truth.add("gateway", "happened", fault=name, kind=kind, **data)

    # -- lines and boards

    def noise(self, board: str, rate: float) -> None:
        self._world.reached["noise on a line"] += 1
        self._world.lines[board].noise(rate, f"{rate} {self._world.time.now}")

    def cut_line(self, board: str, seconds: float) -> None:
        self._world.reached["line cut"] += 1
        self._world.lines[board].cut(seconds)

    def hold_line(self, board: str, seconds: float) -> None:
        self._world.reached["line held"] += 1
        self._world.lines[board].hold(seconds)

    def cut_board(self, board: str, off_ms: int) -> None:
        self._world.boards[board].cut(off_ms)

    def cut_board_in_write(self, board: str, writes: int, tear: int, off_ms: int) -> None:
        self._world.boards[board].cut_at(writes, tear, off_ms)

    def swap(self, board: str, off_ms: int) -> None:
        self._world.reached["board swapped"] += 1
        self._world.swap(board, off_ms)

    def move(self, board: str, gateway: str, off_s: float) -> None:
        self._world.reached["board moved"] += 1
        self._world.unplug(board)
        self._world.time.after(off_s, partial(self._world.plug, board, gateway))

    def move_client(self, client: str, gateway: str, off_s: float) -> None:
        """Disconnect a client, and connect it to a gateway after `off_s`. The gateway may be the
        same.
        """
        world = self._world
        world.reached["client moved"] += 1
        world.clients[client].move(None)
        world.time.after(off_s, lambda: world.clients[client].move(world.living(gateway)))

    # -- gateways

    def kill(self, gateway: str, off_s: float, machine: bool) -> None:
        self._off_s[gateway] = off_s
        self._world.gateways[gateway].die(machine=machine)

    def kill_at_commit(
        self, gateway: str, commits: int, how: str, off_s: float, machine: bool
    ) -> None:
        self._off_s[gateway] = off_s
        self._world.gateways[gateway].die_at(commits, how, machine=machine)

    def _died(self, gateway: Gateway, how: str) -> None:
        self._world.reached["gateway died" + how] += 1
        self._world.network.died(gateway.name)
        for client in self._world.clients.values():
            client.gateway_died(gateway)
        self._begin(KILLED, gateway.name)
        self._world.time.after(self._off_s[gateway.name], partial(self._start, gateway))

    def _start(self, gateway: Gateway) -> None:
        gateway.start()
        self._end(KILLED, gateway.name)

    def bury(self, gateway: str) -> None:
        """Remove a gateway for good, with its disk. The other gateways have copies of all
        publications that it has acknowledged. A run removes only one gateway.
        """
        if any(one.gone for one in self._world.gateways.values()):
            return
        self._world.reached["gateway gone for good"] += 1
        self._tell(FOR_EVER, since=self._world.time.ns)
        self._off_s[gateway] = 0
        self._world.bury(gateway)

    def slow_disk(self, gateway: str, seconds: float) -> None:
        """Let commits take up to this many seconds, until the faults end or the next call."""
        if seconds > _QUICK_S:
            self._world.reached["disk slow"] += 1
            self._begin(SLOW, gateway)
        else:
            self._end(SLOW, gateway)
        self._world.gateways[gateway].disk_s = seconds

    def fail_disk(self, gateway: str, seconds: float) -> None:
        """Let the disk refuse all commits for a while. A gateway cannot start on such a disk."""
        if not self._world.gateways[gateway].alive:
            return
        self._world.reached["disk failed"] += 1
        self._begin(FAILS, gateway)
        self._world.gateways[gateway].fail(True)

        def mend() -> None:
            self._world.gateways[gateway].fail(False)
            self._end(FAILS, gateway)

        self._world.time.after(seconds, mend)

    def part(self, gateway: str, seconds: float) -> None:
        """Cut the gateway off from the others for a while."""
        self._world.reached["gateways cut off"] += 1
        self._begin(CUT_OFF, gateway)
        for other in sorted(self._world.gateways.keys() - {gateway}):
            self._world.network.cut(gateway, other)

        def mend() -> None:
            self._world.network.mend()
            self._end(CUT_OFF, gateway)

        self._world.time.after(seconds, mend)

    # -- copies of stores

    def copy(self, gateway: str) -> None:
        self._copies[gateway] = self._world.gateways[gateway].database.serialize()

    def restore(self, gateway: str, off_s: float) -> None:
        """Restore a store from its copy. The rows of the old store land first, as in the rig
        (`GatewayRestored`).
        """
        if self._world.gateways[gateway].gone:
            return
        self._off_s[gateway] = off_s
        self._world.gateways[gateway].die()
        self._world.reached["store restored"] += 1
        self._tell(RESTORED, restored=self._world.time.ns)
        self._world.restore(gateway, self._copies[gateway])


def run(plan: Plan) -> World:
    """Return a world in which the plan was carried out. Its `judge` then waits until the system is
    at rest, and returns the verdict.
    """
    world = World(plan)
    Faults(world, plan)
    world.run(plan.seconds)
    return world
