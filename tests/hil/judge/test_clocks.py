"""Times that a board may state for a sample, and that a gateway may state for a row. A fault allows
wrong times only for a limited period.
"""

from collections.abc import Sequence
from typing import Any

import cbor2
import pytest

from hil.judge.checker import check
from hil.judge.clocks import EARLY_NS, LATE_NS, RECEIVED_NS, SETTLES_NS, Clocks, unseen_jumps
from hil.judge.senml import Record
from hil.observe.history import Event
from tests.hil.judge.runs import HZ, UTC, S, run_of

HOUR = 3600
FAR = 1 << 62


def clocks(*more: Event, faults: Sequence[dict[str, object]] = ()) -> Clocks:
    """Return the clocks of a board that started at 100 s, got the time from the gateway at 101 s,
    and started again at 200 s. more: further events.
    """
    made = Clocks()
    for event in (
        Event(0, "rig", "run", {"bench": {"fault": list(faults)}}),
        Event(7 * S, "rig", "clock", {"utc": (UTC + 7) * S}),
        *(start(t) for t in (100, 200)),
        said("welcome", 101),
        said("publish", 102, direction="up"),
        *more,
    ):
        made.take(event)
    made.sort()
    return made


def start(t: float, lost: float = 0) -> Event:
    """Return the event of a board's start at `t` seconds. lost: seconds by which the board's clock
    is late.
    """
    data = {"device": "uno-1", "cause": "power-on", "cycle": int((t - lost) * HZ)}
    return Event(int(t * S), "board", "start", data)


def said(event: str, t: float, **data: object) -> Event:
    return Event(int(t * S), "wire", event, {"line": "uno-1", **data})


def jump(since: float, until: float, seconds: int) -> Event:
    data = {"fault": "f", "kind": "clock jump", "shift": seconds * S, "since": int(since * S)}
    return Event(int(until * S), "gateway", "happened", data)


def told(made: Clocks, time: float | None, sampled: float = 150, arrived: float = 151) -> str:
    return made.time_fault("uno-1", time, int(sampled * S), int(arrived * S)) or ""


def test_a_time_is_right_within_its_bound_and_wrong_beyond() -> None:
    made = clocks()
    early, late = EARLY_NS / S, LATE_NS / S
    for error in (-early, -1, 0, late):
        assert told(made, UTC + 150 + error) == ""
    for error in (-early - 1, late + 1, HOUR, -HOUR, -UTC):
        assert "but it was sampled at 2023-11-14T22:15:50" in told(made, UTC + 150 + error)


def test_time_before_any_gateway_time_is_an_error() -> None:
    made = clocks()
    assert told(made, UTC + 250, 250, 251) == (
        "it has a time, but no gateway had given the board a time"
    )
    # the WELCOME came after the sample, in the same start: the board reckons back
    assert told(clocks(said("welcome", 260)), UTC + 250, 250, 261) == ""
    assert told(clocks(said("welcome", 260)), UTC + 250, 250, 259) != ""


def test_no_time_is_for_a_sample_before_the_clock_and_a_start_before_its_arrival() -> None:
    made = clocks()
    assert told(made, None, 100.5, 201) == ""
    assert told(made, None, 250, FAR) == "" or "next start" in told(made, None, 250, FAR)
    assert told(made, None, 150, 201) == (
        "it has no time, although the board had a session before the sample"
    )
    # `sampled` of a status may be too late by JOURNALLED_NS
    assert told(made, None, 102.2, 201) == ""
    assert told(made, None, 102.4, 201) != ""
    assert told(made, None, 100.5, 199) == (
        "it has no time, although it arrived before the board's next start"
    )


def test_reading_may_lack_the_time_before_the_gateway_knows_it() -> None:
    fault = {"kind": "clock-unknown"}
    made = clocks(said("welcome", 201, timed=False), said("publish", 202, direction="up"))
    assert "no gateway had given the board a time" in told(made, UTC + 250, 250, 251)
    assert "next start" in told(made, None, 250, 251), "of a gateway with the time"
    learnt = (said("welcome", 201, timed=False), said("time", 260))
    made = clocks(*learnt, said("publish", 202, direction="up"), faults=[fault])
    assert told(made, None, 250, 251) == ""
    assert told(made, None, 259, 260 + SETTLES_NS / S) == "", "it was on its way"
    assert "next start" in told(made, None, 250, 261 + SETTLES_NS / S)
    assert told(made, UTC + 250, 250, 261) == "", "the board reckons back"


def test_a_publish_that_a_start_overtook_is_no_meeting_of_the_new_life() -> None:
    on_its_way = said("publish", 200.0004, direction="up")
    later = said("welcome", 201), said("publish", 201.1, direction="up")
    assert told(clocks(on_its_way, *later), None, 200.9, 201.2) == (
        "it has no time, although it arrived before the board's next start"
    )
    assert told(clocks(start(210), on_its_way, *later), None, 200.9, 211) == ""
    assert "had a session" in told(clocks(start(210), on_its_way, *later), None, 201.9, 211)


def test_a_board_by_radio_that_had_the_time_must_say_it_too() -> None:
    """For a radio board, no tap on a wire shows when a PUBLISH left. The rig's events of the air
    show the WELCOMEs, and the first PUBLISH of each session.
    """
    met = [Event(t * S, "air", "welcome", {"line": "lora-1"}) for t in (101, 301)]
    began = Event(102 * S, "air", "publish", {"line": "lora-1", "id": 1})
    life = Event(100 * S, "board", "start", {**start(100).data, "device": "lora-1"})
    for known, why in ((began, "had a session before the sample"), (met[0], "next start")):
        found = clocks(life, *met, known).time_fault("lora-1", None, 150 * S, 201 * S)
        assert why in (found or "")


def test_a_jump_excuses_its_own_shift_around_itself_and_nothing_else() -> None:
    made = clocks(jump(100.5, 103, HOUR))
    assert told(made, UTC + 150 + HOUR) == ""
    assert told(made, UTC + 150) == ""  # the jump may not have reached the program
    assert told(made, UTC + 150 - HOUR) != ""
    assert told(made, UTC + 150 + 2 * HOUR) != ""
    # the gateway told the board its time long before, or long after
    later = 101 + SETTLES_NS / S + 1
    assert told(clocks(jump(later, later + 2, HOUR)), UTC + 150 + HOUR) != ""
    assert told(clocks(jump(90, 101 - SETTLES_NS / S - 1, HOUR)), UTC + 150 + HOUR) != ""


def test_delay_of_a_welcome_makes_times_late_by_that_delay() -> None:
    fault = {"kind": "line-stall", "seconds": 20.0}
    stall = said("struck", 105, fault="f", action="stall", direction="down")
    made = clocks(stall, faults=[fault])
    assert told(made, UTC + 150 - 20) == ""
    assert told(made, UTC + 150 - 30) != ""
    assert told(made, UTC + 150 + 20) != ""
    assert told(clocks(faults=[fault]), UTC + 150 - 20) != ""  # planned, and not seen
    late = said("struck", 180, fault="f", action="stall", direction="down")
    assert told(clocks(late, faults=[fault]), UTC + 150 - 20) != ""


def test_time_that_a_busy_machine_took_from_the_board_is_measured() -> None:
    """The board has lost 30 s until its sample at 150 s, and 50 s until its next start. After that,
    it loses no more.
    """
    data = {"device": "uno-1", "sampled": 150 * S, "cycle": (150 - 30) * HZ}
    sample = Event(150 * S, "board", "publication", data)
    made = clocks(sample, start(210, 50), start(220, 50), said("welcome", 221))
    assert told(made, UTC + 150 - 30) == ""
    assert told(made, UTC + 150 - 40) != ""
    assert told(made, UTC + 150 + 30) != ""
    assert told(made, UTC + 230, 230, 231) == ""
    assert told(made, UTC + 230 - 30, 230, 231) != ""
    # before the WELCOME, the board reckons back: the same loss makes a time late
    assert told(made, UTC + 100 + 30, 100.5) == ""
    assert told(made, UTC + 100 + 40, 100.5) != ""
    assert told(made, UTC + 100 - 30, 100.5) != ""


def test_time_lost_since_the_last_sample_is_reported_at_the_end() -> None:
    late = said("welcome", 300)
    end = Event(310 * S, "board", "clock", {"device": "uno-1", "cycle": (310 - 30) * HZ})
    assert told(clocks(late), UTC + 250 + 30, 250, 301) != ""
    assert told(clocks(late, end), UTC + 250 + 30, 250, 301) == ""
    assert told(clocks(late, end), UTC + 250 + 40, 250, 301) != ""


def test_a_reading_says_how_far_its_time_may_be_wrong() -> None:
    """The board got the time at 101 s. Board and gateway drop a fraction of a second each. The
    board's clock may be wrong by a quarter of a second more at 150 s.
    """
    made = clocks()

    def said_of(error: int | None, sampled: int, time: float | None = 1) -> str | None:
        record = Record("uno-1:adc0", 1.0, time and UTC + sampled, "V", error)
        return made.unsure("uno-1", record, sampled * S, (sampled + 1) * S)

    assert [said_of(error, 150) for error in (3, 4, 6)] == [None] * 3
    assert said_of(None, 150) == "it does not state the possible error of its time"
    for error in (0, 2):
        assert said_of(error, 150) == (
            f"it states a possible error of {error} s for its time, but that must be 2.2 to 10.5 s"
        )
    assert "it states a possible error of 12 s" in (said_of(12, 150) or "")
    assert said_of(None, 100, None) is None
    assert said_of(4, 100, None) == "it states a possible error of its time, but has no time"
    assert said_of(4, 250) is None  # no WELCOME in this start: told() judges the time


def test_the_longer_a_board_did_not_get_the_time_the_less_sure_it_must_be() -> None:
    made = Clocks()
    for event in (start(100), said("welcome", 101), said("time", 1101)):
        made.take(event)
    made.sort()
    late = Record("uno-1:adc0", 1.0, UTC + 3101, "V", 12)
    assert made.unsure("uno-1", late, 3101 * S, 3102 * S) is None
    assert "must be 12.0 to 40.0 s" in (
        made.unsure("uno-1", late._replace(error=8), 3101 * S, 3102 * S) or ""
    )


@pytest.mark.parametrize("error", [-HOUR, HOUR, -2, 2.2])
def test_received_lies_between_sample_and_sight(error: float) -> None:
    made = clocks()
    sampled, seen = 150 * S, 151 * S
    assert made.received((UTC + 150) * 1_000_000, sampled, seen) is None
    assert made.received((UTC + 151) * 1_000_000 + RECEIVED_NS // 1000, sampled, seen) is None
    wrong = made.received(int((UTC + 150 + error) * 1_000_000), sampled, seen)
    assert wrong
    assert (
        "but the receipt was between 2023-11-14T22:15:50.000+00:00 and 2023-11-14T22:15:51" in wrong
    )


def test_received_may_jump_with_the_clock_and_may_not_be_missing() -> None:
    made = clocks(jump(149, 151, HOUR))
    shifted = (UTC + 150 + HOUR) * 1_000_000
    assert made.received(shifted, 150 * S, 151 * S) is None
    assert made.received(shifted + 10_000_000, 150 * S, 151 * S) is not None
    assert made.received(shifted - 10_000_000, 150 * S, 151 * S) is not None
    assert made.received(shifted + 20_000_000, 170 * S, 171 * S) is not None
    assert made.received(None, 150 * S, 151 * S) == "`received` is missing"


def test_a_history_that_does_not_tell_the_time_proves_no_time() -> None:
    made = Clocks()
    assert made.time_fault("uno-1", UTC, 0, 0) == "the time of the machine is unknown"
    assert made.received(0, 0, 0) == "the time of the machine is unknown"


def test_from_the_settling_time_on_the_clock_must_have_jumped() -> None:
    made = clocks(jump(140, 155, HOUR))
    shifted, machine = (UTC + 150 + HOUR) * 1_000_000, (UTC + 150) * 1_000_000
    assert made.received(shifted, 149 * S, 151 * S) is None
    assert made.received(machine, 149 * S, 151 * S) is not None
    # the row may be from before the clock was read, or from after the jump
    assert made.received(machine, 142 * S, 151 * S) is None
    assert made.received(machine, 149 * S, 156 * S) is None
    # a board got the time then: from the clock that had jumped
    made = clocks(jump(240, 255, HOUR), said("welcome", 250))
    assert told(made, UTC + 251 + HOUR, 251, 252) == ""
    assert told(made, UTC + 251, 251, 252) != ""


@pytest.mark.parametrize("seconds", [86_401, -86_401, 30 * 86_400])
def test_gateway_does_not_follow_a_clock_that_jumps_by_more_than_a_day(seconds: int) -> None:
    made = clocks(jump(140, 155, seconds))
    shifted, machine = (UTC + 150 + seconds) * 1_000_000, (UTC + 150) * 1_000_000
    assert made.received(machine, 149 * S, 151 * S) is None
    assert made.received(shifted, 149 * S, 151 * S) is not None
    assert made.received(shifted, 142 * S, 151 * S) is not None
    clock = Event(7 * S, "rig", "clock", {"utc": (UTC + 7) * S})
    assert unseen_jumps([clock, jump(150, 156, seconds), row(152)]) == []


def row(t: float, shift: int = 0) -> Event:
    return Event(int(t * S), "spool", "publication", {"received": int((UTC + t + shift) * 1e6)})


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        ([row(151), row(152, HOUR), row(160)], True),
        ([row(151), row(152), row(160)], False),
        ([row(151), row(152, -HOUR)], False),
        ([row(140, HOUR)], False),
        ([], False),
    ],
)
def test_a_clock_jumped_if_a_row_shows_it(rows: list[Event], seen: bool) -> None:
    clock = Event(7 * S, "rig", "clock", {"utc": (UTC + 7) * S})
    told = unseen_jumps([clock, jump(150, 156, HOUR), *rows])
    assert (told == []) is seen


def told_off(seconds: int, count: int = 10, of: str = "uno-") -> list[str]:
    """Judge a run of two boards; return the reasons. Boards whose name begins with `of` state times
    that are off by `seconds`.
    """
    return check(
        [
            Event(e.t, e.hop, e.event, {**e.data, **worded(e, seconds)})
            if ("payload" in e.data or e.event == "reading")
            and str(e.data["device"]).startswith(of)
            else e
            for e in run_of(count)
        ]
    ).reasons


def worded(event: Event, seconds: int) -> dict[str, Any]:
    if event.event == "reading":
        return {"time": event.data["time"] + seconds * 1_000_000}
    ((record),) = cbor2.loads(bytes.fromhex(event.data["payload"]))
    return {"payload": cbor2.dumps([{**record, -3: record[-3] + seconds}]).hex()}


def test_a_few_seconds_off_are_wrong_if_all_times_are() -> None:
    assert told_off(-2) == []
    assert told_off(-3) == ["all times that boards tell are too early, by 3.0 s or more"]
    assert told_off(-3, 9) == []
    assert told_off(1) == []
    assert told_off(2) == ["all times that boards tell are too late, by 2.0 s or more"]


def test_one_board_whose_times_are_all_off_is_wrong_beside_others() -> None:
    assert told_off(-3, 20, "uno-1") == [
        "all times that uno-1 tells are too early, by 3.0 s or more"
    ]
    assert told_off(-3, 19, "uno-1") == []
