"""Actions of the product that have no cause, in a run without faults."""

from dataclasses import replace
from typing import Any

import pytest

from hil.faults.machine import LandingRefuses
from hil.judge.calm import slow_to_go_on
from hil.judge.checker import Verdict, check
from hil.observe.history import Event
from tests.hil.judge.runs import S, until_batch

FAULT = Event(0, "rig", "planned", {"fault": "gateway/kill-1", "kind": "kill"})


def calm(*more: Event, waits: int = 0, bench: dict[str, Any] | None = None) -> list[Event]:
    """Return a run of three readings without a fault. waits: seconds that the last batch waits."""
    events = [one for one in until_batch(3) if "fault" not in one.data]
    first, *others = [one for one in events if one.event != "run" or "bench" in one.data]
    run = {**first.data, "batch_age_s": 2.0, "bench": {**first.data["bench"], **(bench or {})}}
    others = [
        Event(one.t + waits * S, one.hop, one.event, one.data)
        if one.hop == "batch" and one.data.get("sequence") == 3
        else one
        for one in others
        if one.event != "run"
    ]
    return [Event(first.t, "rig", "run", run), *others, *more]


LINE = {"line": "uno-1"}
REFUSED = Event(
    S, "wire", "refused", {**LINE, "direction": "down", "packet": "pubrec", "id": 2, "reason": 0x97}
)
CONNACK = Event(S, "wire", "connack", {**LINE, "session_present": True, "reason": 0})
KEY = {"device": "client-1", "incarnation": 1, "sequence": 1}


def counted(again: int) -> Event:
    counts = {"frames": 9, "frames_again": 2, "publishes": 5, "publishes_again": again}
    ways = {"up": counts, "down": {**counts, "publishes_again": 0}}
    return Event(4 * S, "wire", "count", {**LINE, "final": True, "link": ways})


def connack(t: int) -> Event:
    return Event(t, "wire", "connack", {**CONNACK.data, "incarnation": 1, "clean": True})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([REFUSED], "the gateway refused uno-1 a publication or its release, 1 time(s)"),
        ([counted(3)], "the gateway let uno-1 send a PUBLISH again, 3 time(s)"),
        ([connack(t) for t in range(5)], "the gateway ended a connection of uno-1, 4 time(s)"),
        (
            [Event(S, "board", "resent", KEY)],
            "the gateway let client-1 send a PUBLISH again, 1 time(s)",
        ),
    ],
)
def test_action_without_a_cause_is_reported(more: list[Event], why: str) -> None:
    assert f"{why}, although no fault was planned" in check(calm(*more)).reasons
    for cause in ({"gateway": [{"name": "den"}]}, {"config": {"spool": {"max_bytes": 9}}}):
        assert not any(why in said for said in check(calm(*more, bench=cause)).reasons)
    assert not any(why in said for said in check(calm(FAULT, *more)).reasons)


def test_a_calm_run_holds() -> None:
    result = check(calm(counted(0), connack(S)))
    assert (result.verdict, result.reasons) == (Verdict.HOLDS, [])


def test_a_board_that_starts_again_repeats_what_was_under_way() -> None:
    start = {"device": "uno-1", "cause": "power-on", "cycle": 1}
    second = Event(2 * S, "board", "start", start)
    again = Event(3 * S, "board", "again", {**KEY, "device": "uno-1"})

    def repeats(*more: Event) -> bool:
        return any("send a PUBLISH again" in said for said in check(calm(*more)).reasons)

    assert not repeats(second, again, counted(9))
    assert repeats(again)
    assert repeats(replace(counted(9), t=S), second)


def test_row_that_stays_in_the_store_is_reported_of_its_device() -> None:
    said = check(calm(waits=30)).reasons
    assert [one.partition(" was in the store for 3")[0] for one in said] == [
        "row 5 of uno-1",
        "row 6 of uno-2",
    ]


@pytest.mark.parametrize(
    ("waits", "excused", "slow"), [(10, False, False), (14, False, True), (14, True, False)]
)
def test_rows_land_soon_after_an_outage(waits: int, excused: bool, slow: bool) -> None:
    """An outage of 2 s: rows may wait for five seconds, two for a batch, and six more."""
    last = max(one.t for one in calm() if one.hop == "batch")
    begun = min(one.t for one in calm() if one.hop == "batch" and one.data.get("sequence") == 3)
    said = {"fault": "landing/l-1", "kind": LandingRefuses.text}
    outage = Event(last, "landing", "happened", {**said, "since": begun - 2 * S, "until": begun})
    kill = Event(begun + S, "uplink", "happened", {"fault": "uplink/k-1", "kind": "kill -9"})
    events = [
        replace(one, t=one.t + waits * S) if one.hop == "batch" and one.t >= begun else one
        for one in calm()
    ]
    found = list(slow_to_go_on([*events, outage, *([kill] if excused else [])]))
    told = f"after an outage of 2.0 s, nothing landed for {waits} s, but rows may wait only 13 s"
    assert found == [told] * slow
