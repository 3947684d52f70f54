"""A board's reports of its starts, compared with its simulator and its ledger."""

from typing import Any

from hil.judge.checker import Verdict, check
from hil.judge.starts import wrong
from hil.observe.history import Event
from tests.hil.judge.runs import INCARNATION, S, run_of


def start(t: int) -> Event:
    return Event(t * S, "board", "start", {"device": "uno-1", "cause": "power-on", "cycle": t})


def status(t: int, boot: int) -> Event:
    said: dict[str, Any] = {"device": "uno-1", "incarnation": INCARNATION, "sequence": boot}
    records = [["uno-1:boot", boot, None, None], ["uno-1:cause", 0, None, None]]
    said |= {"kind": "status", "records": records, "sampled": t * S}
    return Event(t * S, "board", "publication", said)


def hello(t: float, boot: int, incarnation: int = INCARNATION) -> Event:
    said = {"line": "uno-1", "boot": boot, "incarnation": incarnation}
    return Event(int(t * S), "wire", "hello", said)


LIVES = [start(0), status(1, 1), start(10), status(11, 3), start(20)]


def test_a_board_that_greets_as_it_has_started() -> None:
    greetings = [hello(0.5, 1, 0), hello(2, 1), hello(12, 3), hello(19, 3)]
    assert wrong([*greetings, *LIVES]) == []
    # the wire may read a greeting after the next start, or before the status of its own start
    assert wrong([*LIVES, hello(10.5, 1), hello(25, 4)]) == []


def test_a_status_tells_the_low_bits_of_the_number_with_which_a_board_greets() -> None:
    lives = [start(0), status(1, 0x3FFF), start(10), status(11, 0)]
    assert wrong([*lives, hello(5, 0xFFFF), hello(15, 0)]) == []
    assert wrong([*lives, hello(5, 0xFFFE)]) != []


def test_a_board_that_greets_as_another_start() -> None:
    assert wrong([*LIVES, hello(5, 2), hello(6, 2)]) == [
        "uno-1 greeted as start 2, but its status reports start 1"
    ]
    assert wrong([*LIVES, hello(12, 1)]) != []  # too late for the start before


def test_a_board_that_greets_under_an_incarnation_that_it_was_never_given() -> None:
    [reason] = wrong([*LIVES, hello(5, 1, 0xBAD)])
    assert reason == "uno-1 greeted under the incarnation 00000bad, which it has never had"
    given = Event(S, "wire", "welcome", {"line": "uno-1", "incarnation": 0xBAD})
    assert wrong([*LIVES, hello(5, 1, 0xBAD), given]) == []


def test_a_wrong_greeting_fails_the_run() -> None:
    stranger = {"line": "uno-1", "boot": 1, "incarnation": 0xBAD}
    result = check([*run_of(3), Event(2 * S, "wire", "hello", stranger)])
    assert result.verdict is Verdict.FAILS
