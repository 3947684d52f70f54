"""With `copies = 2`, a gateway may land another gateway's publications. The judge counts them as
the same rows.
"""

from copy import deepcopy
from typing import Any

import pytest

from hil.faults.site import GatewayDies
from hil.judge.checker import Verdict, check
from hil.judge.publication import Outcome
from hil.observe.history import Event
from tests.hil.judge.runs import S, is_of, until_batch, without, wrong

SITE = [{"name": "attic"}, {"name": "barn"}]
LATER = 20 * S
BEHIND = 20
"""Position of a row that is after all other rows."""
STARTED = 900_000
"""Microseconds from the barn's start to the attic's start."""


def of_site(events: list[Event], copies: int = 2) -> list[Event]:
    """Return a run of a site: the attic received all publications, except the last reading of
    uno-1, which the barn received.
    """
    begin, *rest = events
    bench = {**begin.data["bench"], "gateway": SITE, "config": {"site": {"copies": copies}}}
    run = {**begin.data, "bench": bench, "gateway": ["attic", "barn"]}
    found = [Event(0, "rig", "run", run)]
    for event in rest:
        if "origin" not in event.data:
            found.append(event)
        elif is_of(event, 4):
            found.append(placed(event, "barn", 1))
        else:
            monotonic = event.data["monotonic"] - STARTED
            found.append(placed(event, "attic", event.data["position"], monotonic=monotonic))
    return found


def placed(event: Event, gateway: str, position: int, t: int = 0, **data: Any) -> Event:
    where: dict[str, Any] = {"origin": f"{gateway}/e", "position": position}
    if gateway == "barn" and event.hop == "batch":
        where["batch"] = position
    return Event(event.t + t, event.hop, event.event, {**event.data, **where, **data})


def copied(events: list[Event], hops: tuple[str, ...] = ("spool", "batch")) -> list[Event]:
    """Return the events by which the third reading of uno-1 is also at the barn, as the barn's
    second row.
    """
    there = [event for event in events if is_of(event, 3) and event.hop in hops]
    return [placed(event, "barn", 2, LATER) for event in there]


HELD = of_site(until_batch(4))
ALONE = without(HELD, ("batch",), 3)
"""HELD without the attic's batch of the third reading: the attic was lost before it landed this
reading.
"""


def test_rows_landed_by_another_gateway_are_not_lost() -> None:
    assert check([*ALONE, *copied(HELD)]).verdict is Verdict.HOLDS
    assert wrong(check(ALONE)) == [("uno-1", 3, Outcome.LOST, "batch")]


def test_both_may_land_it() -> None:
    assert check([*HELD, *copied(HELD)]).verdict is Verdict.HOLDS


def test_a_copy_lands_once() -> None:
    copies = copied(HELD)
    found = check([*HELD, *copies, copies[-1]])
    assert [one.outcome for one in found.offenders] == [Outcome.DUPLICATE]


def returned(hops: tuple[str, ...] = ("spool", "batch"), **data: Any) -> list[Event]:
    """Return the events of the third reading of uno-1 that the attic makes when it takes this
    reading back from the barn.
    """
    there = [event for event in HELD if is_of(event, 3) and event.hop in hops]
    return [placed(event, "attic", BEHIND, 2 * LATER, **data) for event in there]


def test_a_copy_may_come_back_to_the_gateway_that_it_is_from() -> None:
    """First the attic's store was restored. Then the barn landed its copies of the attic's rows,
    and after that the barn's store was restored, too.
    """
    life = {"origin": "attic/e restored"}
    events = [
        placed(event, "attic", 1, **life, boot=2, monotonic=0) if is_of(event, 4) else event
        for event in HELD
    ]
    events += [placed(event, "barn", 1) for event in copied(HELD)]
    events += returned(("spool",), **life) + returned(("batch",), **life, batch=2)
    assert check(events).verdict is Verdict.HOLDS
    # a copy of that store has the reading, too
    third = {"origin": "attic/e restored restored", "batch": 1}
    assert check([*events, *returned(("batch",), **third)]).verdict is Verdict.HOLDS


def test_row_does_not_return_before_another_gateway_has_it() -> None:
    found = check([*HELD, *returned()])
    assert [one.outcome for one in found.offenders] == [Outcome.DUPLICATE]


def test_a_gateway_that_lands_what_its_spool_has_not_taken_back_doubles_it() -> None:
    found = check([*HELD, *copied(HELD), *returned(("batch",))])
    assert [one.outcome for one in found.offenders] == [Outcome.DUPLICATE]


def test_a_gateway_that_lands_its_own_under_another_epoch_doubles_it() -> None:
    [row] = [event for event in HELD if is_of(event, 3) and event.hop == "batch"]
    again = placed(row, "attic", row.data["position"], 2 * LATER, origin="attic/f", batch=1)
    found = check([*HELD, *copied(HELD), again])
    assert [one.outcome for one in found.offenders] == [Outcome.DUPLICATE]


def test_no_gateway_lands_rows_of_another_without_copies() -> None:
    events = of_site(without(until_batch(4), ("batch",), 3), copies=1)
    reasons = check([*events, *copied(HELD)]).reasons
    assert "the rows of barn/e from start 1 on have no common beginning of `monotonic`" in reasons
    assert "1 out of order" in reasons


@pytest.mark.parametrize("name", ["received", "boot", "monotonic"])
def test_a_copy_says_when_it_came(name: str) -> None:
    harmed = [placed(event, "barn", 2, **{name: event.data[name] + 1}) for event in copied(HELD)]
    assert check([*ALONE, *harmed]).verdict is Verdict.FAILS


def test_unlanded_copies_of_a_dead_gateway_leave_a_doubt() -> None:
    said = {"fault": "gateway/f-1", "kind": GatewayDies.text, "since": 4 * S, "copied": 1}
    said |= {"gateway": "attic"}
    died = Event(5 * S, "gateway", "happened", said)
    assert check([*HELD, *copied(HELD), died]).verdict is Verdict.HOLDS
    found = check([*HELD, died])
    assert found.verdict is Verdict.UNKNOWN
    assert found.reasons[0].startswith("no other gateway has landed what")


@pytest.mark.parametrize(("silent", "early"), [(21, False), (25, True)])
def test_copies_of_a_dead_gateway_land_after_its_silence(silent: int, early: bool) -> None:
    begin, *rest = deepcopy(ALONE)
    begin.data["bench"]["config"]["site"]["copies_silent_s"] = silent
    spooled = next(event for event in copied(HELD) if event.hop == "spool")
    said = {"fault": "gateway/f-1", "kind": GatewayDies.text, "copied": 1, "gateway": "attic"}
    died = Event(5 * S, "gateway", "happened", {**said, "since": spooled.t - 21 * S})
    told = "barn lands copies of attic 21.0 s after the last sign of attic, but may only after 25 s"
    assert (told in check([begin, *rest, *copied(HELD), died]).reasons) is early
