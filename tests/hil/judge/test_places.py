"""The rig finds the place of some faults by watching. Such a fault counts as struck at this place
only if the rows of the system show it.
"""

import pytest

from hil.faults.board import BoardSwapped
from hil.faults.site import BoardReplugged, BoardRoams
from hil.judge.coverage import doubts
from hil.judge.places import HANDS, LATE
from hil.observe.history import Event

S = 1_000_000_000
PAUSE, KILL = "gateway/gateway-pause-1", "gateway/gateway-kill-1"
ROAMS = "lora-1/board-roams-1"


def planned(fault: str, counter: str, at: int) -> Event:
    data = {"fault": fault, "kind": "paused", "counter": counter, "at": at, "looked": True}
    return Event(0, "rig", "planned", data)


def happened(fault: str, since: int, until: int, kind: str = "paused") -> Event:
    data = {"fault": fault, "kind": kind, "since": since * S}
    return Event(until * S, fault.partition("/")[0], "happened", data)


def rows(hop: str, count: int) -> list[Event]:
    """Return `count` rows of a hop. Row N arrives at second N."""
    return [
        Event(n * S, hop, "publication", {"origin": "site/1", "position": n})
        for n in range(1, count + 1)
    ]


@pytest.mark.parametrize(
    ("since", "there"), [(29, False), (30, True), (30 + LATE, True), (31 + LATE, False)]
)
@pytest.mark.parametrize(("hop", "counter"), [("spool", "spooled"), ("batch", "landed")])
def test_a_place_is_counted_in_the_rows_of_the_system(
    hop: str, counter: str, since: int, there: bool
) -> None:
    fault = [planned(PAUSE, counter, 30), happened(PAUSE, since, since + 5)]
    told = doubts([*rows(hop, 100), *fault])
    expected = (
        f"{PAUSE} (paused) was aimed at {counter} 30, but by the counts in the history it"
        f" struck at {since}"
    )
    assert told == ([] if there else [expected])


def test_landed_row_unseen_in_the_store_was_committed() -> None:
    fault = [planned(PAUSE, "spooled", 30), happened(PAUSE, 31, 36)]
    assert doubts([*rows("batch", 31), *rows("spool", 9), *fault]) == []


def test_samples_of_a_board_are_counted_by_when_they_were_taken() -> None:
    data = {"device": "uno-1", "kind": "reading"}
    told = [
        Event(999, "board", "publication", {**data, "sampled": t * S, "cycle": t})
        for t in range(1, 61)
    ]
    fault = "uno-1/board-eeprom-worn-1"
    place = planned(fault, "sampled uno-1", 10)
    assert doubts([*told, place, happened(fault, 12, 40)]) == []
    assert len(doubts([*told, place, happened(fault, 9, 40)])) == 1
    assert len(doubts([*told, place, happened(fault, 10 + LATE + 1, 40)])) == 1


@pytest.mark.parametrize(("over", "there"), [(60, True), (25, False), (60 - LATE - 9, False)])
def test_only_a_fault_that_was_under_way_at_the_place_excuses_that_it_came_late(
    over: int, there: bool
) -> None:
    late = [planned(PAUSE, "spooled", 30), happened(PAUSE, 62, 70)]
    before = [planned(KILL, "spooled", 5), happened(KILL, 5, over)]
    assert (doubts([*rows("spool", 100), *late, *before]) == []) is there


def test_a_board_that_is_carried_waits_for_the_faults_of_the_site() -> None:
    at = [planned(PAUSE, "spooled", 5), planned(ROAMS, "spooled", 30)]
    carried = happened(ROAMS, 62, 70, BoardRoams.text)
    assert doubts([*rows("spool", 100), *at, happened(PAUSE, 5, 60), carried]) == []
    assert {BoardReplugged.text, BoardSwapped.text, BoardRoams.text} == set(HANDS)


def test_a_board_that_was_struck_keeps_no_fault_of_the_site_waiting() -> None:
    late = [planned(PAUSE, "spooled", 30), happened(PAUSE, 62, 70)]
    reset = happened("uno-1/board-reset-1", 5, 60)
    assert len(doubts([*rows("spool", 100), *late, reset])) == 1


def test_a_run_of_many_publications_is_given_its_share() -> None:
    plan = {"readings": {"uno-1": 500}}
    run = Event(
        0, "rig", "run", {"bench": {"client": [{"messages": 250, "count": 2}]}, "plan": plan}
    )
    fault = [planned(PAUSE, "spooled", 30), happened(PAUSE, 130, 135)]
    assert doubts([run, *rows("spool", 200), *fault]) == []
    assert len(doubts([*rows("spool", 200), *fault])) == 1


@pytest.mark.parametrize(("at_s", "there"), [(31.9, True), (32.1, False)])
def test_immediate_follow_up_is_the_same_place(at_s: float, there: bool) -> None:
    """Between two looks of the rig at the store, clients may add hundreds of messages. So a fault
    may happen many rows after its planned place, if it happens soon enough after it.
    """
    t = int(at_s * S)
    crowd = [
        Event(t, "spool", "publication", {"origin": "site/1", "position": n})
        for n in range(32, 600)
    ]
    struck = Event(t + 1, "gateway", "happened", {"fault": PAUSE, "kind": "paused", "since": t})
    told = doubts([*rows("spool", 31), *crowd, planned(PAUSE, "spooled", 30), struck])
    assert (told == []) is there
