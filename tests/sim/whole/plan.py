"""The plan of a run: its faults and their times.

In: a seed. Out: a `Plan` with a few faults. Each fault has a time. It happens at this time, or
waits from then on for a step, for a write to a board's EEPROM, or for a commit of a gateway. Steps
are packets on a board's line: `hello`, `welcome`, `connack`, `publish`, `pubrel`, `pubcomp`. So
faults fall between any two steps of an exchange. A plan is plain data: it can be printed, and run
again without some of its faults.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

GATEWAYS = ("a", "b", "c")
CLIENTS = ("client-1", "client-2")
STEPS = ("hello", "welcome", "connack", "publish", "pubrel", "pubcomp")
_LASTS = (0.02, 0.15, 0.7, 3.0)
"""Durations of faults, in seconds."""
_RARE, _LONG = 0.2, 0.02
_FULL_S = 17.0
_TEARS = range(4)
_TURN = 0x10000
"""Number of sequences after which packet identifiers repeat: they are the low 16 bits of a
sequence.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A planned fault. at: seconds from the beginning of the run. do: name of the method of
    `Faults` that makes the fault. what: arguments of the method. step: if not empty, the fault
    waits after `at` until the line of `board` has made `count` steps of this name.
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
    """The plan of a run. seed: decides all that is not planned. seconds: duration of the faults.
    first: the boards' next sequence. copies: as in [site]. lands_s: seconds between two landings;
    0: nothing lands before the end.
    """

    seed: int
    gateways: tuple[str, ...]
    boards: tuple[str, ...]
    clients: tuple[str, ...]
    seconds: float
    first: int
    copies: Literal[1, 2]
    lands_s: float
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        head = f"seed {self.seed}: gateways {', '.join(self.gateways)}, {self.copies} copies"
        head += f"; {len(self.boards)} boards"
        head += f" from {self.first} on, {len(self.clients)} clients"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def draw(seed: int) -> Plan:
    """Draw a plan. A seed always gives the same plan."""
    random = Random(seed)
    gateways = GATEWAYS[: random.choice((1, 1, 2, 3))]
    boards = tuple(f"board-{number + 1}" for number in range(random.choice((1, 1, 2))))
    clients = CLIENTS[: random.choice((0, 0, 1, 2))]
    seconds = random.choice((2.0, 3.0, 4.0))
    first = random.choice((1, 1, 1, _TURN - random.randint(1, 8)))
    copies: Literal[1, 2] = random.choice((1, 2)) if len(gateways) > 1 else 1
    lands_s = random.choice((0.0, 0.0, 0.3, 2.0))
    barred = {
        *(_OF_A_SITE if len(gateways) == 1 else _OF_ONE),
        *(_OF_COPIES if clients else _OF_CLIENTS),
    }
    possible = [kind for kind in _DRAWN if kind not in barred]
    kinds = random.sample(possible, random.randint(1, len(possible)))
    if len(gateways) > 1:
        kinds += ["move", *(["move_client"] if clients else [])] * len(kinds)
    faults = []
    for _ in range(random.randint(1, 6)):
        do = random.choice(kinds)
        board, gateway = random.choice(boards), random.choice(gateways)
        who = random.choice(clients) if do in _OF_CLIENTS else board
        step, count = "", 0
        if random.random() < 0.6:
            step, count = random.choice(STEPS), random.randint(1, 3)
        at = round(random.uniform(0.0, seconds), 2)
        faults.append(Fault(at, do, _DRAWN[do](random, who, gateway), board, step, count))
    if copies > 1 and len(gateways) > 2:
        faults += _dying(random, random.choice(gateways), seconds)
    if clients and len(gateways) > 1 and random.random() < _RARE:
        faults += _there_and_back(clients[0], *gateways[:2])
    if random.random() < _LONG:  # the journal becomes full
        seconds = _FULL_S + 3
        faults.append(Fault(1.0, "cut_line", (boards[0], _FULL_S)))
    if first > 1:  # with old slots, which a torn slot may resemble
        torn = _DRAWN["cut_board_in_write"](random, random.choice(boards), "")
        faults.append(Fault(round(random.uniform(0.5, seconds), 2), "cut_board_in_write", torn))
    faults.sort(key=lambda one: one.at)
    return Plan(seed, gateways, boards, clients, seconds, first, copies, lands_s, tuple(faults))


def _dying(random: Random, gateway: str, seconds: float) -> list[Fault]:
    """Return the faults by which a gateway dies for good, or an empty list. The gateway may die
    before its last copies have reached the other members.
    """
    at = round(random.uniform(0.5, seconds), 2)
    faults = [Fault(at, "bury", (gateway,)), Fault(at - 0.4, "part", (gateway, 3.0))]
    return faults[: random.choice((0, 0, 1, 2))]


def _there_and_back(client: str, here: str, there: str) -> list[Fault]:
    """Return faults by which a client begins a newer session at `there` while `here` is cut off,
    and then returns to `here`, which still has its older session.
    """
    return [
        Fault(0.7, "part", (here, 3.0)),
        Fault(0.9, "move_client", (client, there, 0.02)),
        Fault(2.2, "move_client", (client, here, 0.02)),
    ]


def _off_ms(random: Random) -> int:
    return round(1000 * random.choice(_LASTS))


_DRAWN: dict[str, Callable[[Random, str, str], tuple[Any, ...]]] = {
    "noise": lambda random, board, gateway: (board, random.choice((0.001, 0.01, 0.05))),
    "cut_line": lambda random, board, gateway: (board, random.choice(_LASTS)),
    "hold_line": lambda random, board, gateway: (board, random.choice(_LASTS)),
    "cut_board": lambda random, board, gateway: (board, _off_ms(random)),
    "cut_board_in_write": lambda random, board, gateway: (
        board,
        random.choice((1, 2, random.randint(3, 20), random.randint(3, 40))),
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
}
"""Functions that draw the arguments of each kind of fault."""
_OF_A_SITE = ("move", "part")
_OF_ONE = ("swap",)
"""Faults for a lone gateway only. In a site, the judge does not know which session a new board may
find.
"""
_OF_CLIENTS = ("move_client",)
_OF_COPIES = ("copy", "restore")
"""Faults for runs without clients only. A restored store may lack exchanges with clients. The judge
accepts such a loss only for boards.
"""
