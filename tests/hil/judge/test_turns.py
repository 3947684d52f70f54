"""Verdicts on the frames that the rig has read on the air."""

from typing import Any

import pytest

from hil.judge.air import wrong
from hil.judge.checker import Verdict, check
from hil.observe.history import Event
from tests.hil.judge.runs import S
from tests.hil.judge.test_air import COUNTED, by_air
from tests.hil.judge.test_silences import happened, run

CONNACK = {"line": "lora-1", "session_present": True, "reason": 0, "clean": False, "incarnation": 5}


def on_air(event: str, line: str = "lora-1", **data: Any) -> Event:
    return Event(9, "air", event, {"line": line, **data})


def hello(nonce: int, attempt: int = 0, line: str = "lora-1") -> Event:
    numbers = {"boot": 1, "attempt": attempt, "incarnation": 5, "next_sequence": 1}
    return on_air("hello", line, **numbers, nonce=nonce)


def offer(board: int, gateway: int, line: str = "lora-1", at: str = "", t: int = 9) -> Event:
    data = {"line": line, "board": board, "gateway": gateway, "at": at}
    return Event(t, "air", "offer", data)


def test_fresh_nonces_are_right() -> None:
    again = [hello(1), hello(1), offer(1, 11), offer(1, 12), hello(2, 1), offer(2, 13)]
    assert wrong(again) == []


@pytest.mark.parametrize("line", ["lora-1", "lora-2"])
def test_a_nonce_that_stands_still_begins_no_fresh_session(line: str) -> None:
    assert wrong([hello(1), hello(1, 1, line)]) == [
        f"{line} greeted twice with the nonce 0000000000000001"
    ]
    assert wrong([offer(1, 11), offer(2, 11, line)]) == [
        f"the gateway offered {line} a session with the used nonce 000000000000000b"
    ]


TWO_ANSWERED = ["two gateways answered one greeting of lora-1"]


def test_one_greeting_is_answered_by_one_gateway_alone() -> None:
    assert wrong([offer(1, 11, at="attic"), offer(2, 12, at="barn")]) == []
    assert wrong([offer(1, 11, at="attic"), offer(1, 12, at="barn")]) == TWO_ANSWERED
    old = "the gateway offered lora-1 a session with the used nonce 000000000000000b"
    assert wrong([offer(1, 11, at="attic"), offer(1, 11, at="barn")]) == [*TWO_ANSWERED, old]


def test_two_may_answer_if_one_was_silent_since_the_boards_last_connection() -> None:
    cut = happened(since=4, until=6)
    met = [Event(t * S, "air", "connack", CONNACK) for t in (1, 20)]
    both = [offer(1, 11, at="attic", t=22 * S), offer(1, 12, at="barn", t=22 * S)]
    assert wrong([run(), cut, *met[:1], *both]) == []
    assert wrong([run(), cut, *met, *both]) == TWO_ANSWERED


def test_a_sentence_for_each_kind_of_thing() -> None:
    events = [
        on_air("strange", direction="up", frame="00"),
        on_air("strange", direction="up", frame="00"),
        on_air("reused", direction="down", counter=1),
        on_air("unsent", what="TURN"),
        on_air("unrecorded", id=3),
    ]
    assert wrong(events) == [
        "on the air of lora-1 the board sent 2 frames that fit no session of the board",
        "on the air of lora-1 the gateway sent 1 frame with a nonce that was used before for other"
        " content",
        "on the air of lora-1 the gateway answered 1 frame that the board had never sent",
        "on the air of lora-1 the board sent PUBREL for 1 publication without PUBREC"
        " [MQTT-4.3.3-4]",
    ]


@pytest.mark.parametrize(
    "event",
    [
        on_air("unsent", "uno-2", what="TURN"),
        on_air("unasked", "uno-2", direction="down", packet="pubcomp", id=3),
    ],
)
def test_a_run_in_which_that_happened_fails(event: Event) -> None:
    assert check(by_air(COUNTED)).verdict is Verdict.HOLDS
    assert check(by_air(COUNTED, event)).verdict is Verdict.FAILS


def test_invalid_mqtt_on_the_air_leaves_a_doubt() -> None:
    event = on_air("unread", "uno-2", direction="up", why="an incomplete packet")
    assert check(by_air(COUNTED, event)).reasons == [
        "what left the board on the line of uno-2 is not MQTT: an incomplete packet"
    ]


def test_a_session_that_the_gateway_forgets_is_seen_on_the_air_too() -> None:
    told = {"incarnation": 5, "clean": False, "reason": 0}
    first = on_air("connack", "uno-2", **told, session_present=False)
    result = check(by_air(COUNTED, first, first))
    assert result.reasons == ["the gateway has forgotten the session of uno-2"]


def test_board_without_a_read_publication_leaves_a_doubt() -> None:
    events = [event for event in by_air(COUNTED) if (event.hop, event.event) != ("air", "publish")]
    assert check(events).reasons == ["no publication of uno-2 was read on the air"]
