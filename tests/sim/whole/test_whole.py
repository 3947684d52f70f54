"""The whole system on virtual time (README.md): it keeps its promises, and if a promise is broken
on purpose, the judge notices it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.broker.receive_flow import ReceiveFlow
from gateway.runtime.engine import Commits
from gateway.site.moving.replicated import Replicated
from gateway.site.wiring.retained import SiteRetained
from tests.hil.sabotage import catalogue
from tests.sim.whole import sabotages
from tests.sim.whole.plan import Plan, draw
from tests.sim.whole.shrink import shrunk
from tests.sim.whole.soak import REACHED, judge, story
from tests.site.sabotages import sabotaged

SEEDS = 100
"""Number of seeds in `make test`. `make soak` tries 100,000."""


def first_that_fails() -> Plan:
    return next(plan for plan in map(draw, range(SEEDS)) if judge(plan)[1])


def test_no_seed_loses_doubles_or_alters_anything() -> None:
    reached: Counter[str] = Counter()
    for seed in range(SEEDS):
        found, wrong, _ = judge(draw(seed))
        assert not wrong, story(draw(seed), wrong)
        reached += found
    assert [what for what in REACHED if not reached[what]] == []


def test_a_seed_goes_the_same_way_each_time() -> None:
    first, other, again = (judge(draw(seed))[2] for seed in (11, 12, 11))
    assert first == again
    assert first != other


_COMMIT = Commits.commit


def _tell_before_it_is_written(self: Commits, sweep: bool = False) -> None:
    writing = self._writing
    _COMMIT(self, sweep)
    if self._writing != writing:
        self._on_disk(self._writing)
        self._engine.write()


_LOOK = Replicated._look


def _tell_before_it_is_copied(self: Replicated) -> None:
    self._unsafe.clear()
    _LOOK(self)


BROKEN: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "nothing is acknowledged before it is on disk": (
        Commits,
        "commit",
        _tell_before_it_is_written,
    ),
    "what comes again goes nowhere": (ReceiveFlow, "is_duplicate", lambda *_: False),
    "all have the same retained messages": (SiteRetained, "_take", lambda *_: None),
    "what is acknowledged is on a second disk": (Replicated, "_look", _tell_before_it_is_copied),
}


@pytest.mark.parametrize("promise", BROKEN)
def test_a_promise_that_the_gateway_breaks_is_noticed(promise: str) -> None:
    where, name, broken = BROKEN[promise]
    with sabotaged(where, name, broken):
        plan = first_that_fails()
        smallest = shrunk(plan, lambda plan: judge(plan)[1])
        assert judge(smallest)[1], "it goes the same way each time"
        for fault in smallest.faults:
            fewer = tuple(one for one in smallest.faults if one is not fault)
            assert not judge(replace(smallest, faults=fewer))[1], "each of its faults is needed"
    assert not judge(smallest)[1], "it is the broken promise that fails"


@pytest.mark.parametrize("name", sabotages.QUICK)
def test_a_program_that_breaks_a_promise_is_noticed(name: str) -> None:
    """`make soak` tries the other sabotages of `sabotages.MUST`."""
    assert sabotages.noticed(name, sabotages.MUST[name])


def test_required_sabotages_exist() -> None:
    assert sabotages.MUST.keys() <= catalogue().keys()
