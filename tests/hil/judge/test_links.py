"""Sessions of serial lines that are wrong, although both ends agree on them."""

from typing import Any

import pytest

from hil.faults.board import BoardEepromWorn
from hil.faults.gateway import GatewayRestored
from hil.judge.links import RESTORED, WORN, wrong
from hil.observe.history import Event

INPUTS = {"boot": 3, "attempt": 1, "board": 2, "gateway": 9}
GOOD = {"fitting": 20, "strange": 0}


def event(name: str, line: str = "uno-1", **data: Any) -> Event:
    return Event(1, "wire", name, {"line": line, **INPUTS, **data})


def test_sessions_that_follow_from_their_handshakes() -> None:
    assert wrong([event("welcome"), event("session", up=GOOD, down=GOOD)]) == []


def test_a_session_none_of_whose_frames_fits() -> None:
    strange = {"fitting": 0, "strange": 12}
    session = event("session", up=strange, down=GOOD)
    reason = (
        "on the line of uno-1 the board sent frames that do not fit the seed of their session:"
        " 12 of 12 (boot 3, attempt 1, board 2, gateway 9)"
    )
    assert wrong([session]) == [reason]
    assert wrong([session, session]) == [f"{reason}; such sessions: 2"]
    [other] = wrong([event("session", up=GOOD, down=strange)])
    assert "the gateway sent frames that do not fit" in other


def test_a_frame_that_a_power_cut_has_torn_is_nothing() -> None:
    torn = {"fitting": 0, "strange": 1}
    last = {"fitting": 5, "strange": 1}
    assert wrong([event("session", up=torn, down=last)]) == []


def test_a_frame_that_never_arrived_whole_and_was_acknowledged() -> None:
    damaged = [event("unarrived", direction="down", frames=1) for _ in range(2)]
    assert wrong([*damaged, event("unarrived", line="uno-2", direction="up", frames=1)]) == [
        "on the line of uno-1 the board acknowledged 2 frames that never arrived whole",
        "on the line of uno-2 the gateway acknowledged 1 frame that never arrived whole",
    ]


def connack(t: int, present: bool, **other: Any) -> Event:
    said = {"line": "uno-1", "session_present": present, "reason": 0}
    return Event(t, "wire", "connack", {**said, "incarnation": 7, "clean": False, **other})


def test_a_session_that_the_gateway_has_forgotten() -> None:
    goes_on = [connack(1, False, clean=True), connack(2, True), connack(3, True)]
    assert wrong(goes_on) == []
    assert wrong([*goes_on, connack(4, False)]) == [
        "the gateway has forgotten the session of uno-1"
    ]
    # a new session is wanted, two other boards, a refusal; then the first connection
    others = ({"clean": True}, {"incarnation": 8}, {"line": "uno-2"}, {"reason": 0x88})
    for other in others:
        assert wrong([*goes_on, connack(4, False, **other)]) == []
    assert wrong([connack(1, False)]) == []


def test_a_restored_store_is_excused_for_having_forgotten_once() -> None:
    happened = {"fault": "gateway/gateway-restored-1", "kind": RESTORED, "restored": 4}
    restored = Event(6, "gateway", "happened", happened)
    goes_on = [connack(1, False, clean=True), connack(3, True), restored]
    assert wrong([*goes_on, connack(5, False), connack(7, True)]) == []
    forgotten = ["the gateway has forgotten the session of uno-1"]
    assert wrong([*goes_on, connack(5, False), connack(7, False)]) == forgotten
    assert wrong([connack(1, False, clean=True), connack(3, False), restored]) == forgotten


def test_kinds_of_faults_are_called_as_the_judge_knows_them() -> None:
    assert GatewayRestored.text == RESTORED
    assert BoardEepromWorn.text == WORN


def exchanged(t: int, name: str, number: int = 5, **other: Any) -> Event:
    return Event(t, "wire", name, {"line": "uno-1", "direction": "up", "id": number, **other})


REFUSAL = {"direction": "down", "packet": "pubcomp", "reason": 0x92}
WORN_OUT = Event(2, "uno-1", "happened", {"fault": "uno-1/board-eeprom-worn-1", "kind": WORN})


@pytest.mark.parametrize(
    ("between", "excused"),
    [
        ([], False),
        ([connack(3, True)], False),
        ([exchanged(3, "pubcomp", direction="down")], False),
        ([exchanged(3, "refused", **{**REFUSAL, "packet": "pubrec", "reason": 0x97})], False),
        ([connack(3, False, clean=True)], True),
        ([exchanged(3, "refused", **REFUSAL)], True),
        ([WORN_OUT], True),
    ],
)
def test_a_released_publication_that_is_published_again_is_a_mistake(
    between: list[Event], excused: bool
) -> None:
    first = [exchanged(1, "publish"), exchanged(2, "pubrel")]
    again = exchanged(4, "publish")
    found = wrong([*first, *between, again, exchanged(5, "publish", number=6)])
    sentence = "uno-1 sent PUBLISH again for 1 publication after PUBREL"
    assert found == ([] if excused else [sentence])


def test_a_seed_that_is_used_twice() -> None:
    assert wrong([event("welcome"), event("welcome")]) == [
        "uno-1 began two sessions with the same seed (boot 3, attempt 1, board 2, gateway 9)"
    ]
    [reason] = wrong([event("welcome"), event("welcome", "uno-2")])
    assert reason.startswith("uno-1 and uno-2 have begun two sessions with the same seed")
    assert wrong([event("welcome"), event("welcome", gateway=10)]) == []
