"""What may happen to a run, and when.

In: a seed. Out: a `Plan`: a few faults, each with its moment. A moment is a time, or the first or a
later step behind it: something that the rig's tap reads on a board's line (`hello`, `welcome`,
`connack`, `publish`, `pubrel`, `pubcomp`), a write to a board's EEPROM, a commit of a gateway. So
faults fall between any two steps of an exchange. A plan is plain data: it can be printed, and run
again without some of its faults.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.sim.whole.gateway import Gateway
from tests.sim.whole.world import World

STEPS = ("hello", "welcome", "connack", "publish", "pubrel", "pubcomp")
_LASTS = (0.02, 0.15, 0.7, 3.0)
"""Seconds."""
_SEVERAL = 4
_TEARS = range(4)


@dataclass(frozen=True, slots=True)
class Fault:
    """at: seconds since the run began. step: on the line of `board`, the `count`th of which behind
    `at` it strikes; none: at once. do: a method of `Faults`, which gets `what`.
    """

    at: float
    do: str
    what: tuple[Any, ...]
    board: str = ""
    step: str = ""
    count: int = 0

    def __str__(self) -> str:
        where = f" at {self.step} {self.count} of {self.board}" if self.step else ""
        return f"{self.at:.2f} s{where}: {self.do} {', '.join(map(str, self.what))}"


@dataclass(frozen=True, slots=True)
class Plan:
    """seed: of all that is not planned. seconds: how long faults may strike."""

    seed: int
    gateways: tuple[str, ...]
    boards: tuple[str, ...]
    seconds: float
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed}: gateways {', '.join(self.gateways)}; {len(self.boards)} boards"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def draw(seed: int) -> Plan:
    """The same plan for the same seed."""
    random = Random(seed)
    gateways = ("a",)
    boards = tuple(f"board-{number + 1}" for number in range(random.choice((1, 1, 2))))
    seconds = random.choice((2.0, 3.0, 4.0))
    kinds = random.sample(sorted(_DRAWN), random.randint(2, len(_DRAWN)))
    faults = []
    for _ in range(random.randint(1, 6)):
        do = random.choice(kinds)
        board, gateway = random.choice(boards), random.choice(gateways)
        step, count = "", 0
        if random.random() < 0.6:
            step, count = random.choice(STEPS), random.randint(1, 3)
        at = round(random.uniform(0.0, seconds), 2)
        what = _DRAWN[do](random, board, gateway)
        faults.append(Fault(at, do, what, board, step, count))
    return Plan(seed, gateways, boards, seconds, tuple(sorted(faults, key=lambda one: one.at)))


def _off_ms(random: Random) -> int:
    return round(1000 * random.choice(_LASTS))


_DRAWN: dict[str, Callable[[Random, str, str], tuple[Any, ...]]] = {
    "noise": lambda random, board, gateway: (board, random.choice((0.001, 0.01, 0.05))),
    "cut_line": lambda random, board, gateway: (board, random.choice(_LASTS)),
    "hold_line": lambda random, board, gateway: (board, random.choice(_LASTS)),
    "cut_board": lambda random, board, gateway: (board, _off_ms(random)),
    "cut_board_in_write": lambda random, board, gateway: (
        board,
        random.randint(1, 40),
        random.choice(_TEARS),
        _off_ms(random),
    ),
    "kill": lambda random, board, gateway: (
        gateway,
        random.choice(_LASTS),
        random.random() < 0.5,
    ),
    "kill_at_commit": lambda random, board, gateway: (
        gateway,
        random.choice((1, 1, 2, 3, 5)),
        random.choice(("before", "behind")),
        random.choice(_LASTS),
        random.random() < 0.5,
    ),
    "slow_disk": lambda random, board, gateway: (gateway, random.choice((0.0, 0.05, 0.4))),
    "copy": lambda random, board, gateway: (gateway,),
    "restore": lambda random, board, gateway: (gateway, random.choice(_LASTS)),
}
"""What each kind of fault is told."""


class Faults:
    """Carries out a plan."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._told = 0
        self._off_s: dict[str, float] = {}
        """How long a gateway that dies stays dead."""
        for gateway in world.gateways.values():
            gateway.died = self._died
        self._copies = {name: one.database.serialize() for name, one in world.gateways.items()}
        for fault in plan.faults:
            world.time.at(fault.at, lambda fault=fault: self._arm(fault))  # type: ignore[misc]

    def _arm(self, fault: Fault) -> None:
        strike = lambda: getattr(self, fault.do)(*fault.what)  # noqa: E731
        if fault.step:
            self._world.on_step(fault.board, fault.step, fault.count, strike)
        else:
            strike()

    def _tell(self, kind: str, **data: Any) -> None:
        self._told += 1
        name = f"fault-{self._told}"
        self._world.truth.add("gateway", "happened", fault=name, kind=kind, **data)

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

    def kill(self, gateway: str, off_s: float, machine: bool) -> None:
        self._off_s[gateway] = off_s
        self._world.gateways[gateway].die(machine=machine)

    def kill_at_commit(
        self, gateway: str, commits: int, how: str, off_s: float, machine: bool
    ) -> None:
        self._off_s[gateway] = off_s
        self._world.gateways[gateway].die_at(commits, how, machine=machine)

    def _died(self, gateway: Gateway, how: str) -> None:
        self._tell("kill -9 of the gateway")
        self._world.reached["gateway died" + how] += 1
        self._world.time.after(self._off_s[gateway.name], gateway.start)

    def slow_disk(self, gateway: str, seconds: float) -> None:
        self._tell("slow fsync")
        self._world.gateways[gateway].disk_s = seconds

    def copy(self, gateway: str) -> None:
        self._copies[gateway] = self._world.gateways[gateway].database.serialize()

    def restore(self, gateway: str, off_s: float) -> None:
        """What the store holds lands before, as in the rig (`GatewayRestored`)."""
        self._off_s[gateway] = off_s
        self._world.gateways[gateway].die()
        self._world.reached["store restored"] += 1
        self._tell("gateway's store restored from a backup", restored=self._world.time.ns)
        self._world.restore(gateway, self._copies[gateway])


def run(plan: Plan) -> World:
    """Let it happen, then let the system come to rest. The world's `judge` says how it went."""
    world = World(plan.seed, plan.gateways, len(plan.boards))
    Faults(world, plan)
    world.run(plan.seconds)
    return world
