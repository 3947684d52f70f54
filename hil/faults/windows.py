"""Windows. A window is the time between two steps of a program; there the rig kills the program.
In: a window's name and the machine under the program (preload.c). Out: a program that is stopped in
this window. A kill at a counted commit always hits the moment just after the commit. A kill in a
window hits the time in which a line of code decides whether a promise holds.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hil.faults.base import Kind
from hil.faults.fault import Fault
from hil.faults.preload import Machine
from hil.faults.under_test import ProgramUnderTest
from hil.judge import coverage
from hil.observe.counters import wait_until

REACHED_WITHIN = 180.0
"""Seconds within which the program must reach the window. Boards and clients continue meanwhile."""
LOOK_EVERY = 0.002  # s
MOST_PASSED = 2  # writes to a line that may pass first, so that later answers are hit, too
MOST_COMMITS = 20  # commits in a row without a publication
PASSED_WITHIN = 10.0  # s after which the fault lets no further writes pass


@dataclass(frozen=True, slots=True)
class Window:
    """A window, in which a fault stops a program. code: the window's number in preload.c. text: its
    name for people, and in the coverage table. seconds: from the stop to the kill. If one thread is
    stopped, the other threads run during this time: bytes that they wrongly send arrive.
    """

    code: int
    text: str
    seconds: float = 0.0


BEFORE_WRITE, BEFORE_SYNC, AFTER_SYNC, AFTER_ACK = 1, 2, 3, 4
BEFORE_MANIFEST, BEFORE_DELETE, AFTER_DELETE = 5, 6, 7
BEFORE_RELEASE, AFTER_RELEASE, BEFORE_ACK = 8, 9, 10
WITH_PASS = (AFTER_ACK, BEFORE_RELEASE, AFTER_RELEASE, BEFORE_ACK)
"""Windows at a write to a line. The fault first lets a drawn number of writes pass."""

OF_GATEWAY = {
    "received": Window(BEFORE_WRITE, coverage.RECEIVED, 1.0),
    "committed": Window(BEFORE_ACK, coverage.COMMITTED),
    "acknowledged": Window(AFTER_ACK, coverage.ACKNOWLEDGED, 0.2),
}
OF_GATEWAYS_DISK = OF_GATEWAY | {
    "received": Window(BEFORE_SYNC, coverage.RECEIVED, 1.0),
    "committed": Window(AFTER_SYNC, coverage.COMMITTED),
}
"""Windows of a power cut, which keeps synced data. (A kill has others, because a kill after the
sync still loses a commit that SQLite has not made visible.)"""
OF_RELEASES = {
    "recorded": Window(BEFORE_RELEASE, coverage.RECORDED),
    "released": Window(AFTER_RELEASE, coverage.RELEASED, 0.2),
}
OF_UPLINK = {
    "data": Window(BEFORE_MANIFEST, coverage.DATA),
    "landed": Window(BEFORE_DELETE, coverage.LANDED),
    "deleted": Window(AFTER_DELETE, coverage.DELETED),
}


class WindowKind(Kind):
    """A kind whose faults happen in windows: in each window in turn, beginning with a random one,
    or only in the window that the bench names.
    """

    windows: ClassVar[Mapping[str, Window]]
    needs_traffic: ClassVar[bool] = True
    looked: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    window: str = "any"
    """Window of the faults. `any`: each fault takes the next window of its kind."""

    def faults(self, seed: int, readings: dict[str, int]) -> Iterator[Fault]:
        names = list(self.windows) if self.window == "any" else [self.window]
        begin = random.Random(f"{seed}/{self.kind}/window").randrange(len(names))
        for number, fault in enumerate(super().faults(seed, readings), begin):
            rng = random.Random(f"{seed}/{fault.id}/window")
            window = {"window": names[number % len(names)], "pass": rng.randint(0, MOST_PASSED)}
            yield replace(fault, detail={**fault.detail, **window})

    def aim(self, fault: Fault) -> dict[str, Any] | None:
        return {"window": self.windows[fault.detail["window"]].text}

    async def halt(
        self,
        fault: Fault,
        machine: Machine,
        child: ProgramUnderTest,
        is_there: Callable[[int], bool] = lambda window: True,
    ) -> str | None:
        """Let the program run until the fault's window, and stop it in the window. Return the
        window's text; None if the program did not reach it. The caller must disarm the machine
        after the fault. is_there: whether a publication is in the state that the window names
        (`SystemUnderTest.is_at`). If not, the program continues to the next such window.
        """
        window = self.windows[fault.detail["window"]]
        for _ in range(MOST_COMMITS):
            text = await self._stand(fault, machine, child, window)
            if text is None or is_there(window.code):
                return text
            machine.disarm()
            child.resume()
        return None

    async def _stand(
        self, fault: Fault, machine: Machine, child: ProgramUnderTest, window: Window
    ) -> str | None:
        machine.arm(window.code, fault.detail["pass"] if window.code in WITH_PASS else 0)

        def in_window() -> bool:
            child.check()
            return machine["reached"] == window.code

        try:
            try:
                async with asyncio.timeout(PASSED_WITHIN):
                    await wait_until(in_window, LOOK_EVERY)
            except TimeoutError:
                machine["pass"] = 0
                async with asyncio.timeout(REACHED_WITHIN):
                    await wait_until(in_window, LOOK_EVERY)
        except TimeoutError:
            machine.disarm()
            child.resume()  # the program may have reached the window now
            return None
        await asyncio.sleep(window.seconds)
        child.pause()
        await wait_until(lambda: child.paused, LOOK_EVERY)
        return window.text if machine["reached"] == window.code else None
