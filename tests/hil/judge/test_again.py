"""A run with kills between a commit and its acknowledgement proves something about them only if a
board has sent a stored publication again. Otherwise the verdict is `unknown`.
"""

from typing import Any

import pytest

from hil.judge.checker import Verdict, check
from hil.judge.coverage import ACKNOWLEDGED, COMMITTED
from hil.observe.history import HOPS, Event
from tests.hil.judge.runs import DEVICES, S, begin, run_of

KILL = {"fault": "gateway/kill-1", "kind": "kill"}


def killed(window: str) -> list[Event]:
    events = [event for event in run_of(3) if event.event != "happened"]
    return [*events, Event(2 * S, "gateway", "happened", {**KILL, "window": window})]


def publish(t: int, identifier: int = 2, line: str = DEVICES[0]) -> Event:
    said: dict[str, Any] = {"line": line, "direction": "up", "id": identifier, "topic": "t"}
    return Event(t, "wire", "publish", {**said, "payload": "00"})


def by_radio(t: int) -> Event:
    return Event(t, "air", "publish", {"line": DEVICES[0], "direction": "up", "id": 2})


STORED = 2 * S + S // 10 * HOPS.index("spool")
"""Time at which the second publication was stored in the spool, in nanoseconds."""


@pytest.mark.parametrize(
    ("sent", "verdict"),
    [
        ([], Verdict.UNKNOWN),
        ([publish(STORED - 1)], Verdict.UNKNOWN),
        ([publish(STORED + 1, identifier=9)], Verdict.UNKNOWN),
        ([publish(STORED + 1, line="uno-9")], Verdict.UNKNOWN),
        ([publish(STORED - 1), publish(STORED + 1)], Verdict.HOLDS),
        ([by_radio(STORED - 1)], Verdict.UNKNOWN),
        ([by_radio(STORED + 1)], Verdict.HOLDS),
    ],
)
def test_a_kill_behind_a_commit_must_make_a_board_send_again(
    sent: list[Event], verdict: Verdict
) -> None:
    result = check([*killed(COMMITTED), *sent])
    assert result.verdict is verdict
    told = "no board has sent a publication again that the store already had"
    assert any(told in reason for reason in result.reasons) is (verdict is Verdict.UNKNOWN)


def test_other_windows_do_not_ask_for_it() -> None:
    assert check(killed(ACKNOWLEDGED)).verdict is Verdict.HOLDS


def test_repetition_is_not_required_of_clients() -> None:
    """The publication that was in work at the kill may be a client's, and the rig sees no wire of a
    client. So the judge requires no second PUBLISH.
    """
    message = {"device": "client-1", "incarnation": 5, "sequence": 1, "kind": "message", "qos": 0}
    client = Event(S, "board", "publication", {**message, "topic": "t", "payload": "00"})
    events = [begin("table", 3, messages=1), *killed(COMMITTED)[1:], client]
    told = check(events).reasons
    assert not any("again that the store" in reason for reason in told)
