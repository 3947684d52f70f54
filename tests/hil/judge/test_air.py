"""Radio boards: the reports of the ether replace those of a wire."""

import pytest

from hil.judge import air
from hil.judge.checker import Verdict, check
from hil.judge.links import RESTORED
from hil.judge.publication import Key
from hil.judge.seen import Seen
from hil.judge.silences import Silences
from hil.observe.history import Event
from tests.hil.judge.runs import S, run_of
from tests.hil.judge.test_silences import happened, run


def by_air(*more: Event) -> list[Event]:
    """Return a run in which uno-2 is a radio board, and add the events `more`."""
    events = []
    for event in run_of(3):
        if event.hop == "wire" and event.data.get("line") == "uno-2":
            if event.event == "welcome":
                events.append(Event(event.t, "air", "welcome", {"line": "uno-2"}))
                said = {"line": "uno-2", "direction": "up", "id": 1}
                events.append(Event(event.t, "air", "publish", said))
        else:
            events.append(event)
    return [*events, *more]


COUNTED = Event(9, "air", "radio", {"line": "uno-2", "sent": 4, "foreign": 3, "airtime": 0.4})


def test_a_run_with_a_board_by_radio_holds() -> None:
    result = check(by_air(COUNTED))
    assert result.verdict is Verdict.HOLDS, result.reasons


def test_an_ether_that_has_not_reported_its_counts_leaves_a_doubt() -> None:
    result = check(by_air())
    assert result.verdict is Verdict.UNKNOWN
    assert "uno-2" in result.reasons[0]


def test_gateways_without_a_common_board_leave_a_doubt() -> None:
    def counted(shared: int) -> Event:
        return Event(9, "air", "radio", {**COUNTED.data, "shared": shared})

    assert check(by_air(counted(1))).verdict is Verdict.HOLDS
    assert check(by_air(counted(0))).reasons == ["no frame of uno-2 was heard by two gateways"]


@pytest.mark.parametrize(
    ("sessions", "known"), [((4,), True), ((3,), False), ((3, 3), False), ((1, 5, 2), True)]
)
def test_a_session_shorter_than_the_bench_needs_leaves_a_doubt(
    sessions: tuple[int, ...], known: bool
) -> None:
    """The judge does not add up the publications of several sessions. One session must have enough
    of them.
    """
    table = {"bench": {"air": {"turns": 4}}}
    events = [Event(0, "rig", "run", table)]
    for publications in sessions:
        events.append(Event(1, "air", "welcome", {"line": "uno-2"}))
        said = {"line": "uno-2", "direction": "up"}
        events += [Event(2, "air", "publish", {**said, "id": n}) for n in range(publications)]
    told = f"no session had 4 publications: the longest had {max(sessions)}"
    assert air.doubts(events) == ([] if known else [told])


def test_breach_of_the_duty_cycle_fails() -> None:
    why = "uno-2: 361 s within 3600 s"
    result = check(by_air(COUNTED, Event(9, "air", "breach", {"why": why})))
    assert result.verdict is Verdict.FAILS
    assert result.reasons == [f"a transmission broke the radio law: {why}"]


def test_a_board_by_radio_that_greets_as_another_start_fails() -> None:
    hello = {"line": "uno-2", "boot": 9, "attempt": 0, "incarnation": 77, "next_sequence": 1}
    hello["nonce"] = 1
    starts = Event(1, "board", "start", {"device": "uno-2", "cause": "power-on", "cycle": 1})
    result = check(by_air(COUNTED, starts, Event(2, "air", "hello", hello)))
    assert any("0000004d, which it has never had" in reason for reason in result.reasons)


def test_an_air_that_was_to_lose_frames_and_lost_none_leaves_a_doubt() -> None:
    events = by_air(COUNTED)
    begin = next(event for event in events if event.event == "run")
    begin.data["bench"]["air"] = {"trace": "bursts"}
    assert check(events).reasons == ["the air should have lost frames as in bursts, but lost none"]
    # these may be frames for other boards
    lossy = Event(9, "air", "radio", {"line": "uno-2", "sent": 4, "lost": 1, "airtime": 0.4})
    assert check([*events, lossy]).verdict is Verdict.UNKNOWN
    replayed = Event(9, "air", "replayed", {"line": "uno-2", "direction": "up", "lost": 1})
    assert check([*events, replayed]).verdict is Verdict.HOLDS


def test_a_second_row_of_a_board_by_radio_has_no_excuse() -> None:
    """A board by radio has made a publication twice, which only its EEPROM shows. The gateway's
    anti-replay window must drop the second one, so only one row is allowed.
    """
    seen = Seen()
    seen.take(COUNTED)
    for device in ("uno-1", "uno-2"):
        told = {"device": device, "incarnation": 5, "sequence": 7}
        seen.take(Event(9, "board", "again", told))
    seen.claim = "batch"
    assert seen.allowed(Key("uno-2", 5, 7), 2) == 1
    assert seen.allowed(Key("uno-1", 5, 7), 2) == 1


@pytest.mark.parametrize("present", [True, False])
def test_a_second_row_is_excused_if_a_gateway_was_silent_when_its_board_came(present: bool) -> None:
    told = {"line": "uno-2", "session_present": present, "reason": 0, "clean": False}
    came = Event(5 * S, "air", "connack", {**told, "incarnation": 5})
    sent = [
        Event(t * S, "air", "publish", {"line": "uno-2", "direction": "up", "id": number})
        for t, number in ((4, 7), (6, 7), (6, 8))
    ]
    for events, allowed in (([came], 1), ([run(), happened(), came], 2)):
        seen = Seen(silences=Silences(events))
        seen.claim = "batch"
        for event in [COUNTED, *sent, came]:
            seen.take(event)
        assert seen.allowed(Key("uno-2", 5, 7), 2) == allowed
        assert seen.allowed(Key("uno-2", 5, 8), 2) == 1, "it was not sent before"


def test_each_restore_of_the_store_may_land_a_publication_once_more() -> None:
    seen = Seen()
    seen.take(COUNTED)
    seen.claim = "batch"
    for number, key in ((1, Key("uno-2", 5, 7)), (2, Key("uno-1", 5, 7))):
        told = {"fault": f"gateway/gateway-restored-{number}", "kind": RESTORED, "restored": 4}
        seen.take(Event(9, "gateway", "happened", told))
        assert seen.allowed(key, 2) == 1 + number
    seen.claim = "table"
    assert seen.allowed(Key("uno-2", 5, 7), 2) == 1


def test_airtime_that_was_to_run_out_and_did_not_leaves_a_doubt() -> None:
    def sent(hour: float) -> list[Event]:
        modem = {"line": "gateway", "sent": 4, "airtime": 0.4, "hour": hour}
        events = by_air(COUNTED, Event(9, "air", "radio", modem))
        begin = next(event for event in events if event.event == "run")
        begin.data["bench"]["air"] = {"sent_before": 358}
        return events

    assert check(sent(359.9)).verdict is Verdict.HOLDS
    (reason,) = check(sent(359.0)).reasons
    assert reason == "the gateway should have used up its airtime, but sent only 359.0 s in an hour"
    killed = Event(8, "gateway", "happened", {"fault": "f", "kind": "kill -9 of the gateway"})
    text = "the gateway should have used up its airtime, but sent only"
    assert not any(text in reason for reason in check([*sent(359.0), killed]).reasons)
    assert any(text in reason for reason in check([*sent(358.1), killed]).reasons)


def attacked(*more: Event, heard: int = 9) -> list[Event]:
    """Return a run that plans nine frames of a foreign radio. heard: how many the gateway heard."""
    modem = {"line": "gateway", "sent": 4, "foreign": heard, "airtime": 0.4}
    events = by_air(COUNTED, Event(9, "air", "radio", modem), *more)
    begin = next(event for event in events if event.event == "run")
    begin.data["bench"]["air"] = {"foreign": "replay", "foreign_frames": 9}
    return events


def test_a_foreign_radio_that_the_gateway_has_not_heard_leaves_a_doubt() -> None:
    assert check(attacked()).verdict is Verdict.HOLDS
    (reason,) = check(attacked(heard=8)).reasons
    assert reason == "the gateway heard 8 of 9 planned frames of a foreign radio"
    events = [event for event in attacked() if event is not COUNTED]
    deaf = Event(9, "air", "radio", {**COUNTED.data, "foreign": 0})
    assert check([*events, deaf]).reasons == ["uno-2 has heard nothing of the foreign radio"]


def test_a_board_that_a_foreign_radio_chases_out_of_its_session_fails() -> None:
    def meeting(boot: int, attempt: int, met: bool = True) -> list[Event]:
        told = {"boot": boot, "attempt": attempt, "incarnation": 0, "next_sequence": 1}
        told["nonce"] = boot << 8 | attempt
        hello = Event(2, "air", "hello", {"line": "uno-2", **told})
        return [hello, Event(2, "air", "welcome", {"line": "uno-2", "incarnation": 0})][: 1 + met]

    def verdict(*meetings: list[Event]) -> str:
        kill, slow = (
            Event(1, "gateway", "happened", {"fault": f"gateway/{number}", "kind": kind})
            for number, kind in enumerate(("kill -9 of the gateway", "slow disk"))
        )
        seen = [event for meeting in meetings for event in meeting]
        result = check(attacked(kill, slow, *seen))
        return "; ".join(result.reasons) or result.verdict

    unheard = [meeting(1, attempt, False) for attempt in range(5)]
    assert verdict(*unheard, meeting(1, 5), meeting(2, 0), meeting(2, 1)) == Verdict.HOLDS
    told = "uno-2 sent HELLO in 2 sessions without having restarted, but only 1 of them can be due"
    assert told in verdict(meeting(1, 0), meeting(1, 1), meeting(1, 2))


def test_board_never_seen_with_the_gateway_leaves_a_doubt() -> None:
    events = [event for event in by_air(COUNTED) if (event.hop, event.event) != ("air", "welcome")]
    result = check(events)
    assert result.verdict is not Verdict.HOLDS
    assert "no handshake of uno-2 with the gateway was seen" in result.reasons
