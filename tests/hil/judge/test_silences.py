"""Exceptions that the judge makes at a site of several gateways: lost sessions while a gateway is
silent, and lost rows after a gateway and its card are gone for good.
"""

from typing import Any

import pytest

from hil.faults.site import GatewayDies, MemberSlow, Partition, RollingRestart
from hil.judge.checker import check
from hil.judge.links import wrong as wrong_links
from hil.judge.places import misplaced
from hil.judge.publication import Outcome
from hil.judge.silences import SETTLES, SILENCING
from hil.observe.history import Event
from tests.hil.judge.runs import S, until_batch, without

SITE = [{"name": "attic"}, {"name": "barn"}]


def run(several: bool = True) -> Event:
    return Event(0, "rig", "run", {"bench": {"gateway": SITE if several else []}})


def happened(kind: str = Partition.text, since: int = 4, until: int = 6, **more: Any) -> Event:
    data = {"fault": "gateway/f-1", "kind": kind, "since": since * S, **more}
    return Event(until * S, "gateway", "happened", data)


def connack(t: float, present: bool) -> Event:
    data = {"line": "uno-1", "session_present": present, "reason": 0, "clean": False}
    return Event(int(t * S), "wire", "connack", {**data, "incarnation": 7})


FORGOTTEN = ["the gateway has forgotten the session of uno-1"]


def test_a_session_may_be_gone_while_a_gateway_is_silent_and_at_the_next_one_after_that() -> None:
    begun = [run(), happened(), connack(1, False)]
    assert wrong_links([*begun, connack(2, False)]) == FORGOTTEN
    assert wrong_links([*begun, connack(5, False), connack(20, False)]) == []
    assert wrong_links([*begun, connack(5, False), connack(20, True), connack(21, False)]) == (
        FORGOTTEN
    )
    settled = 6 + SETTLES / S + 1
    assert wrong_links([*begun, connack(3, True), connack(settled, False)]) == FORGOTTEN


def test_a_board_that_greeted_in_a_silence_and_never_heard_the_answer_is_excused() -> None:
    """The board greeted during a silence and received no answer. The gateway may have begun a
    session for the board all the same, which explains Session Present 0 later.
    """
    begun, late = [run(), happened(), connack(1, False)], connack(20, False)

    def hello(t: int) -> Event:
        return Event(t * S, "wire", "hello", {"line": "uno-1", "boot": 2})

    assert wrong_links([*begun, hello(5), hello(19), late]) == []
    assert wrong_links([*begun, hello(2), hello(19), late]) == FORGOTTEN
    answered = [*begun, hello(5), connack(5.1, False), hello(11), connack(11.1, True)]
    assert wrong_links([*answered, hello(19), late]) == FORGOTTEN


def test_one_gateway_alone_and_one_that_answered_all_are_not_excused() -> None:
    gone = [connack(1, False), connack(5, False)]
    assert wrong_links([run(several=False), happened(), *gone]) == FORGOTTEN
    assert wrong_links([run(), happened(MemberSlow.text, doubts=0), *gone]) == FORGOTTEN
    assert wrong_links([run(), happened(MemberSlow.text, doubts=1), *gone]) == []


def test_a_planned_restart_excuses_nothing() -> None:
    gone = [connack(1, False), connack(5, False)]
    assert wrong_links([run(), happened(RollingRestart.text, excuses=False), *gone]) == FORGOTTEN
    assert wrong_links([run(), happened(RollingRestart.text), *gone]) == [], "an older history"


def test_dead_gateway_stays_silent() -> None:
    late = [connack(1, False), connack(900, False)]
    assert wrong_links([run(), happened(GatewayDies.text), *late]) == []


def test_the_kinds_of_faults_are_called_as_the_judge_knows_them() -> None:
    kinds = (Partition, MemberSlow, RollingRestart, GatewayDies)
    assert {kind.text for kind in kinds} <= set(SILENCING)


def died(sequence: int) -> Event:
    key = {"device": "uno-1", "incarnation": 0xC0FFEE, "sequence": sequence}
    return Event(50 * S, "spool", "died", key)


def released(sequence: int, t: int) -> Event:
    data = {"line": "uno-1", "direction": "up", "id": sequence}
    return Event(t * S, "wire", "pubrel", data)


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ([died(3), released(3, 4)], Outcome.DIED),
        ([died(3)], Outcome.LOST),  # nobody has told the board that it was stored
        ([died(3), released(3, 51)], Outcome.LOST),  # by another gateway
        ([died(2), released(3, 4)], Outcome.LOST),  # it was not on that card
    ],
)
def test_rows_lost_with_a_card_are_its_acknowledged_ones(
    more: list[Event], outcome: Outcome
) -> None:
    events = without(until_batch(4), "batch", 3)
    result = check([*events, *more])
    [found] = [one for one in result.publications if one.outcome is not Outcome.OK]
    assert (found.key.sequence, found.outcome) == (3, outcome)
    assert (not result.offenders) == (outcome is Outcome.DIED)


def test_a_place_is_counted_over_the_stores_of_all_gateways() -> None:
    def row(t: int, gateway: str, position: int) -> Event:
        data = {"origin": f"{gateway}/e", "position": position}
        return Event(t * S, "spool", "publication", data)

    plan = {"fault": "gateway/f-1", "kind": "k", "counter": "spooled", "at": 60, "looked": True}
    events = [
        Event(0, "rig", "run", {"bench": {}, "plan": {"readings": {"uno-1": 100}}}),
        Event(0, "rig", "planned", plan),
        *(row(n, "attic", n) for n in range(1, 31)),
        *(row(n, "barn", n) for n in range(1, 31)),
    ]
    assert misplaced([*events, happened("k", since=40, until=41)]) == []
    assert misplaced([*events, happened("k", since=25, until=26)])
