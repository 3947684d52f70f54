"""The moment at which a sweep regards all exchanges as ended."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from hil.faults import sweep
from hil.faults.fault import Fault
from hil.faults.under_test import SystemUnderTest
from hil.observe.counters import LOOK_EVERY

FAULT = Fault("uno-2/x-1", "x", "gateway", "", "spooled", 1)


class Publisher:
    def __init__(self) -> None:
        self.journalled, self.waiting = 0, 0

    def look(self) -> None:
        pass

    def exchange(self) -> None:
        """Begin and end an exchange."""
        self.journalled += 1


def returns_behind(makers: str, behind_others: bool, monkeypatch: Any) -> int | None:
    """Return the number of the exchange after which the sweep is quiet, or None if it never is.
    makers: the board of each exchange; `1` is uno-1, `2` is uno-2.
    """
    monkeypatch.setattr(sweep, "STILL_S", 0)
    publishers = {"uno-1": Publisher(), "uno-2": Publisher()}
    machine = {"steps": 10**6}
    site = SimpleNamespace(machine=lambda name: machine)
    system = cast(SystemUnderTest, SimpleNamespace(site=site, publishers=publishers))

    async def run() -> int | None:
        waiter = asyncio.ensure_future(sweep._all_quiet(FAULT, system, behind_others))
        for count, maker in enumerate(makers, 1):
            await asyncio.sleep(0.02)
            publishers[f"uno-{maker}"].exchange()
            for _ in range(20):  # enough looks on a busy machine
                await asyncio.sleep(LOOK_EVERY)
                if waiter.done():
                    return count
        waiter.cancel()
        return None

    return asyncio.run(run())


def test_sweep_waits_for_the_end_of_an_exchange(monkeypatch: Any) -> None:
    """After a power cut of uno-2, an exchange of uno-2 shows that it has started again. Exchanges
    of uno-1 do not show this.
    """
    assert returns_behind("1112", False, monkeypatch) == 4
    assert returns_behind("111", False, monkeypatch) is None


def test_two_boards_in_step_take_turns(monkeypatch: Any) -> None:
    """The boards exchange alternately: if the target has just exchanged, the other board
    is next.
    """
    assert returns_behind("21", True, monkeypatch) == 2
    assert returns_behind("1", True, monkeypatch) == 1


def test_lone_target_does_not_wait(monkeypatch: Any) -> None:
    assert returns_behind("22", True, monkeypatch) == 2
