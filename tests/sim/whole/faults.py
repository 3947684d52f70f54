"""What may happen to a run, and when.

In: a seed. Out: a `Plan`: a few faults, each with its moment. A moment is a time, or the first or a
later step behind it: something that the rig's tap reads on a board's line (`hello`, `welcome`,
`connack`, `publish`, `pubrel`, `pubcomp`), a write to a board's EEPROM, a commit of a gateway. So
faults fall between any two steps of an exchange. A plan is plain data: it can be printed, and run
again without some of its faults.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Literal

from hil.judge.links import RESTORED
from hil.judge.silences import FOR_EVER
from tests.sim.whole.gateway import Gateway
from tests.sim.whole.world import CLIENTS, World

GATEWAYS = ("a", "b", "c")
KILLED, SLOW, FAILS = "kill -9 of the gateway", "slow fsync", "disk full"
CUT_OFF = "gateways cut off from each other"
"""As the judge knows them (`hil/judge/silences.py`)."""
STEPS = ("hello", "welcome", "connack", "publish", "pubrel", "pubcomp")
_LASTS = (0.02, 0.15, 0.7, 3.0)
"""Seconds."""
_LONG = 0.02
"""So many plans last until a journal is full."""
_FULL_S = 17.0
_TEARS = range(4)
_TURN = 0x10000
"""A packet identifier is a sequence without what is above 16 bits, and never 0."""
_QUICK_S = 0.1
"""A disk that is no slower excuses nothing: a gateway waits for another one for a second."""


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
    """seed: of all that is not planned. seconds: how long faults may strike. first: the boards'
    next sequence. copies: as in [site].
    """

    seed: int
    gateways: tuple[str, ...]
    boards: tuple[str, ...]
    clients: tuple[str, ...]
    seconds: float
    first: int
    copies: Literal[1, 2]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed}: gateways {', '.join(self.gateways)}, {self.copies} copies"
        head += f"; {len(self.boards)} boards"
        head += f" from {self.first} on, {len(self.clients)} clients"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def draw(seed: int) -> Plan:
    """The same plan for the same seed."""
    random = Random(seed)
    gateways = GATEWAYS[: random.choice((1, 1, 2, 3))]
    boards = tuple(f"board-{number + 1}" for number in range(random.choice((1, 1, 2))))
    clients = CLIENTS[: random.choice((0, 0, 1, 2))]
    seconds = random.choice((2.0, 3.0, 4.0))
    first = random.choice((1, 1, 1, _TURN - random.randint(1, 8)))
    copies: Literal[1, 2] = random.choice((1, 2)) if len(gateways) > 1 else 1
    barred = {
        *(_OF_A_SITE if len(gateways) == 1 else _OF_ONE),
        *(_OF_COPIES if clients else _OF_CLIENTS),
        "bury",
    }
    possible = [kind for kind in _DRAWN if kind not in barred]
    kinds = random.sample(possible, random.randint(1, len(possible)))
    if len(gateways) > 1:
        kinds += ["move", *(["move_client"] if clients else [])] * len(kinds)
    drawn = [random.choice(kinds) for _ in range(random.randint(1, 6))]
    faults = []
    for do in drawn:
        board, gateway = random.choice(boards), random.choice(gateways)
        who = random.choice(clients) if do in _OF_CLIENTS else board
        step, count = "", 0
        if random.random() < 0.6:
            step, count = random.choice(STEPS), random.randint(1, 3)
        at = round(random.uniform(0.0, seconds), 2)
        faults.append(Fault(at, do, _DRAWN[do](random, who, gateway), board, step, count))
    if copies > 1 and len(gateways) > 2:
        faults += _dying(random, random.choice(gateways), seconds)
    if random.random() < _LONG:
        seconds = _FULL_S + 3
        faults.append(Fault(1.0, "cut_line", (boards[0], _FULL_S)))
    faults.sort(key=lambda one: one.at)
    return Plan(seed, gateways, boards, clients, seconds, first, copies, tuple(faults))


def _dying(random: Random, gateway: str, seconds: float) -> list[Fault]:
    """Perhaps it is gone for good, and perhaps its copies did not reach the others just before."""
    at = round(random.uniform(0.5, seconds), 2)
    faults = [Fault(at, "bury", (gateway,)), Fault(at - 0.4, "part", (gateway, 3.0))]
    return faults[: random.choice((0, 0, 1, 2))]


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
    "fail_disk": lambda random, board, gateway: (gateway, random.choice(_LASTS)),
    "swap": lambda random, board, gateway: (board, _off_ms(random)),
    "copy": lambda random, board, gateway: (gateway,),
    "restore": lambda random, board, gateway: (gateway, random.choice(_LASTS)),
    "move": lambda random, board, gateway: (board, gateway, random.choice(_LASTS)),
    "move_client": lambda random, client, gateway: (client, gateway, random.choice(_LASTS)),
    "part": lambda random, board, gateway: (gateway, random.choice(_LASTS)),
    "bury": lambda random, board, gateway: (gateway,),
    "land": lambda random, board, gateway: (gateway,),
}
"""What each kind of fault is told."""
_OF_A_SITE = ("move", "part")
_OF_ONE = ("swap",)
"""Which session of a site a new board may find, the judge does not know."""
_OF_CLIENTS = ("move_client",)
_OF_COPIES = ("copy", "restore")
"""A restored store has forgotten flows of clients, as it must; the judge knows of boards only."""


class Faults:
    """Carries out a plan."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._told = 0
        self._off_s: dict[str, float] = {}
        """How long a gateway that dies stays dead."""
        self._spans: dict[tuple[str, str], int] = {}
        """What began and is not over, by kind and gateway, in ns."""
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
        """The judge hears of it when it is over, as it does of the rig's faults."""
        if (since := self._spans.pop((kind, gateway), None)) is not None:
            self._tell(kind, since=since)

    def _mending(self) -> None:
        """What is under way is over, and what waits for its moment never comes."""
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
        """Perhaps to where it is: then its connection is lost."""
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
        """The others have copies of all that it has acknowledged. Two of them must be left."""
        if any(one.gone for one in self._world.gateways.values()):
            return
        self._world.reached["gateway gone for good"] += 1
        self._tell(FOR_EVER, since=self._world.time.ns)
        self._off_s[gateway] = 0
        self._world.bury(gateway)

    def land(self, gateway: str) -> None:
        if not self._world.gateways[gateway].gone:
            self._world.land(self._world.gateways[gateway])

    def slow_disk(self, gateway: str, seconds: float) -> None:
        """For the rest of the faults, or until it is quick again."""
        if seconds > _QUICK_S:
            self._world.reached["disk slow"] += 1
            self._begin(SLOW, gateway)
        else:
            self._end(SLOW, gateway)
        self._world.gateways[gateway].disk_s = seconds

    def fail_disk(self, gateway: str, seconds: float) -> None:
        """It takes no commit for a while. Nobody can start on such a disk."""
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
        """Nothing passes between it and the others."""
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
        """What the store holds lands before, as in the rig (`GatewayRestored`)."""
        if self._world.gateways[gateway].gone:
            return
        self._off_s[gateway] = off_s
        self._world.gateways[gateway].die()
        self._world.reached["store restored"] += 1
        self._tell(RESTORED, restored=self._world.time.ns)
        self._world.restore(gateway, self._copies[gateway])


def run(plan: Plan) -> World:
    """Let it happen. The world's `judge` lets the system come to rest, and says how it went."""
    world = World(
        plan.seed, plan.gateways, len(plan.boards), len(plan.clients), plan.first, plan.copies
    )
    Faults(world, plan)
    world.run(plan.seconds)
    return world
