"""Compares the starts of simulated boards, as their simulators saw them, with the starts that the
boards report. In: a history. Out: sentences about wrong HELLOs. A HELLO is wrong if its boot number
differs from the one in the status message of the same start, or if the board never had its
incarnation. hil/devices/samples.py judges the status messages.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from hil.judge.senml import BOOT, BOOT_MASK
from hil.observe.history import Event, taking

S = 1_000_000_000
READ_NS = S
"""Longest time in ns from a board's HELLO until the rig has read it, on a busy machine."""


@dataclass(slots=True)
class _Board:
    """Recorded facts about the starts of one board. Times are in ns of the monotonic clock. starts:
    when its simulator started. reported: time of each status publication, and the low bits
    (BOOT_MASK) of its boot number. greetings: time, boot number and incarnation of each HELLO.
    incarnations: those of its publications, and those that a WELCOME gave to it.
    """

    starts: list[int] = field(default_factory=list)
    reported: list[tuple[int, int]] = field(default_factory=list)
    greetings: list[tuple[int, int, int]] = field(default_factory=list)
    incarnations: set[int] = field(default_factory=set)

    def wrong(self) -> Iterable[str]:
        self.starts.sort()
        boots: dict[int, int] = {self._life(t): boot for t, boot in self.reported}
        for t, boot, incarnation in self.greetings:
            if incarnation and incarnation not in self.incarnations:
                yield f"greeted under the incarnation {incarnation:08x}, which it has never had"
            # the board may have lost its power just after its HELLO
            possible = range(self._life(t - READ_NS), self._life(t) + 1)
            known = [boots[life] for life in possible if life in boots]
            if len(known) == len(possible) and boot & BOOT_MASK not in known:
                yield f"greeted as start {boot}, but its status reports start {known[-1]}"

    def _life(self, t: int) -> int:
        return bisect_right(self.starts, t)


def wrong(events: Iterable[Event]) -> list[str]:
    boards: dict[str, _Board] = defaultdict(_Board)
    for event in events:
        with taking(event):
            _take(event, boards)
    return [
        f"{name} {why}"
        for name, board in sorted(boards.items())
        if board.starts
        for why in dict.fromkeys(board.wrong())
    ]


def _take(event: Event, boards: dict[str, _Board]) -> None:
    data = event.data
    match event.hop, event.event:
        case "board", "start":
            boards[data["device"]].starts.append(event.t)
        case "board", "publication" if "sampled" in data:
            board = boards[data["device"]]
            board.incarnations.add(data["incarnation"])
            boot = [value for name, value, *_ in data["records"] if name.endswith(f":{BOOT}")]
            board.reported += [(data["sampled"], int(value)) for value in boot]
        case "wire" | "air", "hello":
            greeting = event.t, data["boot"], data["incarnation"]
            boards[data["line"]].greetings.append(greeting)
        case "wire" | "air", "welcome" if "incarnation" in data:
            boards[data["line"]].incarnations.add(data["incarnation"])
