"""Checks the commands to the boards.

In: the content of a history. Out: mistakes in how the boards obeyed, and boards that have not shown
that they obey.

Each command sets another interval. A board has obeyed when its EEPROM has the interval and its
samples follow it: the Nth sample after the first one comes N intervals later, at most `WAITS_MS`
early or late.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from hil.boards.simulator import HZ
from hil.judge.seen import Seen

WAITS_MS = 175
"""Longest delay of a sample, in ms, by EEPROM writes: a slot, the slot's marks and an interval."""
SHOWS = 3
"""Number of sampling intervals after a command that suffice to show that a board obeys it."""
_MS = HZ // 1000


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The samples of a board between two commands or starts. interval: in ms. samples: board
    time of each sample, and the number of conversions up to then.
    """

    interval: int
    samples: list[tuple[int, int]]

    def wrong(self) -> str | None:
        for cycle, number in self.samples:
            first, before = self.samples[0]
            elapsed, due = (cycle - first) // _MS, (number - before) * self.interval
            if abs(elapsed - due) > WAITS_MS:
                return f"took {number - before} samples in {elapsed} ms, not in {due} ms"
        return None

    @property
    def shows(self) -> bool:
        return self.samples[-1][1] - self.samples[0][1] >= SHOWS


def disobeyed(seen: Seen) -> list[str]:
    """Return sentences about boards that have not obeyed each command once and in order, or whose
    samples do not fit a command. A missing command is a mistake only if the run is complete.
    """
    whole = seen.ended and not seen.deaths and not seen.broken
    found_faults = []
    for device in sorted(seen.commands.keys() | seen.obeyed.keys()):
        sent, obeyed = (
            [interval for _, interval in sorted(events[device])]
            for events in (seen.commands, seen.obeyed)
        )
        if obeyed != sent and (whole or obeyed != sent[: len(obeyed)]):
            found_faults.append(
                f"{device} was given the intervals {_numbers(sent)}, but obeyed {_numbers(obeyed)}"
            )
        found = (why for stretch in _stretches(device, seen) if (why := stretch.wrong()))
        found_faults += [f"{device} recorded a command, but {why}" for why in found]
    return found_faults


def unshown(seen: Seen) -> Iterator[str]:
    """Yield a sentence for each board that has stored commands, but took too few samples after each
    command to prove that it obeys.
    """
    for device, obeyed in sorted(seen.obeyed.items()):
        if obeyed and not any(stretch.shows for stretch in _stretches(device, seen)):
            yield f"{device} took too few samples after each command to show that it obeys"


def _stretches(device: str, seen: Seen) -> Iterator[_Stretch]:
    """Yield the stretches of a board. Each begins at an obeyed command, or at a start after one,
    and ends at the next command or start. Samples just before a command are left out: they may
    already have its interval, because the rig sees a command a little later than the board.
    """
    obeyed, starts = sorted(seen.obeyed[device]), sorted(seen.starts[device])
    cycles = [cycle for cycle, _ in obeyed]
    number = 0
    stretches: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for cycle, count in sorted(seen.samples[device]):
        number += count
        command, life = bisect_right(cycles, cycle), bisect_right(starts, cycle)
        if command and bisect_right(cycles, cycle + WAITS_MS * _MS) == command:
            stretches.setdefault((command, life), []).append((cycle, number))
    for (command, _), samples in stretches.items():
        yield _Stretch(obeyed[command - 1][1], samples)


def _numbers(values: list[int]) -> str:
    return ", ".join(map(str, values)) or "none"
