"""Random schedules of a site (world.py). The tests also check that the schedules find promises
which are broken on purpose.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from tests.site.rules import test_moves as moves
from tests.site.rules import test_recalls as recalls
from tests.site.rules import test_restores as restores
from tests.site.rules import test_silence as silence
from tests.site.rules import test_two_sessions as two_sessions
from tests.site.rules.three import Site
from tests.site.sabotages import SABOTAGES, first_noticed, sabotage
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


BY_A_RULE: dict[str, Callable[[Site], None]] = {
    "answers do not wait for the disk": moves.test_negative_reply_waits_for_the_disk,
    "nothing is in doubt": (
        silence.test_member_after_a_partition_asks_before_it_continues_a_session
    ),
    "over before the commit": recalls.test_undelivered_export_is_recalled,
    "a restore is kept quiet": partial(
        restores.test_state_forgotten_by_a_restore_swallows_no_publish, gateway="a"
    ),
    "a copy is as good as what it was": partial(
        restores.test_a_restored_store_holds_nothing_newer_even_with_a_higher_epoch, gateway="c"
    ),
    "no doubt comes with a session": (restores.test_replies_before_a_restore_report_are_suspect),
    "the one that stays is not in doubt": partial(
        two_sessions.test_remaining_one_of_two_sessions_that_name_each_other_is_suspect,
        gateway="a",
        word=2,
    ),
    "an earlier word ends a record": (
        two_sessions.test_an_answer_about_the_record_of_before_does_not_end_the_one_of_now
    ),
    "the highest epoch wins": silence.test_a_stale_session_does_not_win_by_its_epoch,
}


@pytest.mark.parametrize("name", sorted(SABOTAGES.keys() - BY_A_RULE.keys()))
def test_a_broken_promise_is_noticed(name: str) -> None:
    number, _ = first_noticed(name, range(150), run_schedule)
    assert number >= 0


@pytest.mark.parametrize("name", sorted(BY_A_RULE))
def test_a_broken_promise_that_is_seldom_needed_is_noticed_by_its_rule(name: str) -> None:
    with sabotage(name), pytest.raises((AssertionError, IndexError)):
        BY_A_RULE[name](Site())
