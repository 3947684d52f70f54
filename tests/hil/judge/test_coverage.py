"""If a fault happened at another place than planned, the verdict is unknown and names the fault. A
fault that happened late because it waited for another planned fault counts as done.
"""

from typing import Any

import pytest

from hil.faults.ingest import STEPS, CentrePowerCut, IngestKill
from hil.judge.coverage import (
    AFTER_WRITE,
    COMMITTED,
    GUARDS,
    IN_PUBLISH,
    IN_PUBREL,
    IN_WRITE,
    RECEIVED,
    coverage,
    doubts,
    guarded,
)
from hil.observe.history import Event

AIM = {"sample": 7, "writes": 3, "torn": True}
CUT = "uno-1/board-power-cut-1"


def planned(fault: str = CUT, aim: dict[str, Any] | None = None) -> Event:
    return Event(1, "rig", "planned", {"fault": fault, "kind": "power cut", "aim": aim})


def happened(fault: str = CUT, **data: Any) -> Event:
    return Event(2, "uno-1", "happened", {"fault": fault, "kind": "power cut", **data})


@pytest.mark.parametrize(
    ("data", "there"),
    [
        ({"hit": AIM}, True),
        ({"hit": {**AIM, "more": 1}}, True),
        ({"hit": {**AIM, "writes": 4}}, False),
        ({"hit": {**AIM, "sample": 9}}, False),
        ({"hit": {**AIM, "sample": 9}, "behind": "uno-1/board-reset-1"}, True),
        ({"hit": {**AIM, "sample": 10}, "behind": "uno-1/board-reset-1"}, False),
        ({"hit": {**AIM, "sample": 6}, "behind": "uno-1/board-reset-1"}, False),
        ({"hit": {**AIM, "sample": 9}, "behind": "uno-1/never-heard-of-1"}, False),
        ({"hit": {**AIM, "sample": 9, "torn": False}, "behind": "uno-1/board-reset-1"}, False),
        ({}, False),
    ],
)
def test_a_fault_must_strike_where_it_was_aimed(data: dict[str, Any], there: bool) -> None:
    events = [
        planned(aim=AIM),
        happened(**data),
        planned("uno-1/board-reset-1"),
        happened("uno-1/board-reset-1", hit={"sample": 5}, over={"sample": 8}),
    ]
    told = doubts(events)
    assert (told == []) is there
    if not there:
        assert told[0].startswith(f"{CUT} (power cut) was aimed at sample 7, writes 3, torn True")


CUT_LINE = {"up publication": 7, "up after": 3, "down publication": 7, "down after": 3}


@pytest.mark.parametrize(
    ("hit", "behind", "there"),
    [
        ({}, None, True),
        ({"down after": 4}, None, False),
        ({"down publication": 8}, None, False),
        ({"down publication": 8}, "uno-1/line-cut-2", True),
        ({"down publication": 9}, "uno-1/line-cut-2", False),
        ({"up publication": 8}, "uno-1/line-cut-2", False),  # no bytes went in that direction
        ({"down after": 4}, "uno-1/line-cut-2", False),
    ],
)
def test_a_line_must_be_struck_at_its_place_in_each_direction(
    hit: dict[str, int], behind: str | None, there: bool
) -> None:
    events = [planned(aim=CUT_LINE), happened(hit={**CUT_LINE, **hit}, behind=behind)]
    way = {"hit": {"down publication": 6}, "over": {"down publication": 7}}
    assert (doubts([*events, happened("uno-1/line-cut-2", **way)]) == []) is there


@pytest.mark.parametrize(("sample", "there"), [(9, True), (10, True), (11, False)])
def test_fault_that_waited_for_two_others_may_strike_after_both(sample: int, there: bool) -> None:
    """No exchange is in progress at the next sample after a reset."""
    cut, reset = "uno-1/board-power-cut-2", "uno-1/board-reset-1"
    events = [
        planned(aim=AIM),
        happened(hit={**AIM, "sample": sample}, behind=cut),
        happened(cut, hit={"sample": 6}, over={"sample": 8}),
        happened(reset, hit={"sample": 9}),
        happened("uno-2/board-power-cut-1", hit={"sample": 7}, over={"sample": 20}),
        happened("uno-1/board-power-cut-3", hit={"sample": 12}, over={"sample": 20}),
    ]
    assert (doubts(events) == []) is there


def test_a_fault_without_a_place_of_its_own_has_none_to_miss() -> None:
    assert doubts([planned(), happened()]) == []


def test_publications_before_arming_are_named() -> None:
    def publication(t: int, device: str) -> Event:
        return Event(t, "board", "publication", {"device": device})

    armed = Event(10, "rig", "armed", {"held": ["uno-1", "uno-2"]})
    events = [publication(9, "uno-1"), armed, publication(11, "uno-2"), publication(5, "real-1")]
    assert doubts(events) == ["uno-1 published before all faults and observers were armed"]
    assert doubts(events[1:]) == []


def test_windows_are_counted_by_kind() -> None:
    events = [happened(window=IN_WRITE), happened(window=AFTER_WRITE), happened(window=IN_WRITE)]
    assert coverage([*events, happened(window=None)]) == {
        "power cut": {IN_WRITE: 2, AFTER_WRITE: 1}
    }


def kill(number: int, aim: str, hit: str | None) -> list[Event]:
    fault = f"gateway/gateway-kill-{number}"
    named = {"fault": fault, "kind": "kill -9 of the gateway"}
    events = [Event(1, "rig", "planned", {**named, "aim": {"window": aim}})]
    if hit:
        data = {**named, "hit": {"window": hit}, "window": hit}
        events.append(Event(2, "gateway", "happened", data))
    return events


def test_a_planned_window_that_was_never_hit_is_named_with_the_claim_that_it_guards() -> None:
    assert doubts([*kill(1, RECEIVED, RECEIVED), *kill(2, COMMITTED, COMMITTED)]) == []
    told = doubts([*kill(1, RECEIVED, RECEIVED), *kill(2, COMMITTED, None)])
    assert told == [
        f"no kill -9 of the gateway fell into the window `{COMMITTED}`, which guards:"
        " a message that is sent again is accepted once"
    ]
    assert len(doubts([*kill(1, RECEIVED, COMMITTED)])) == 2  # it struck elsewhere, too


def test_a_sweep_must_go_through_all_of_its_windows() -> None:
    kind = "power cut at a byte of the exchange"
    named = {"fault": CUT, "kind": kind}
    planned = Event(1, "rig", "planned", {**named, "aim": {"bytes": 3}})
    cut = Event(2, "uno-1", "happened", {**named, "hit": {"bytes": 3}, "window": IN_PUBLISH})
    [told] = doubts([planned, cut])
    assert told.startswith(f"no {kind} fell into the window `{IN_PUBREL}`")


def test_each_step_at_which_the_ingest_is_killed_is_a_window() -> None:
    for kind in IngestKill, CentrePowerCut:
        assert {f"before {step}" for step in STEPS} == GUARDS[kind.text].keys()


def test_planned_windows_without_a_hit_are_shown() -> None:
    """The table shows a planned kind of fault even if no fault of this kind hit a window."""
    kill, cut = "kill -9 of the gateway at a release", "power cut"
    windows = list(GUARDS[kill])
    hit = {cut: {IN_WRITE: 2}}
    rows = guarded(hit, {kill: set(windows), cut: {IN_WRITE}, "burst": {"any"}})
    assert [row[:3] for row in rows] == [
        ("burst", "any", 0),
        *((kill, window, 0) for window in windows),
        (cut, IN_WRITE, 2),
    ]
    assert [row[1] for row in guarded(hit)] == list(GUARDS[cut]), "no plan: all windows of the kind"
