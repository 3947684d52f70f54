"""Random schedules of a site (world.py); what they notice when a promise is broken on purpose."""

from collections import Counter

import pytest

from tests.site.sabotages import RARE, SABOTAGES, first_noticed
from tests.site.soak import REACHED, run_schedule

SCHEDULES = 300


def test_random_schedules_keep_every_promise() -> None:
    reached: Counter[str] = Counter()
    for number in range(SCHEDULES):
        try:
            reached += run_schedule(number)
        except AssertionError as error:
            raise AssertionError(f"python -m tests.site.soak --replay {number}") from error
    assert [what for what in REACHED if not reached[what]] == []


@pytest.mark.parametrize("name", sorted(SABOTAGES.keys() - RARE))
def test_a_broken_promise_is_noticed(name: str) -> None:
    number, _ = first_noticed(name, range(100), run_schedule)
    assert number >= 0


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(RARE))
def test_a_promise_that_is_seldom_needed_is_noticed_when_it_is_broken(name: str) -> None:
    number, _ = first_noticed(name, range(5000), run_schedule)
    assert number >= 0
