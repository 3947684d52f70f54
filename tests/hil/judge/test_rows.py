"""The judge compares every column of every row: if any value differs, the run fails, and the reason
says where.
"""

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.judge.checker import Verdict, check
from hil.judge.publication import Outcome
from hil.observe.history import HOPS, READINGS, Event
from tests.hil.judge.runs import (
    DEVICES,
    HZ,
    INCARNATION,
    UTC,
    S,
    begin,
    is_of,
    message,
    of_client,
    run_of,
    seed,
    until_batch,
    without,
    wrong,
)

COUNT = 4
HOUR_US = 3_600_000_000
OF_A_ROW: dict[str, Any] = {
    "topic": "sensors/uno-2/adc0",
    "client": "uno-2",
    "received": UTC * 1_000_000 + HOUR_US,
    "origin": "elsewhere/e",
    "payload": "00",
    "boot": 7,
    "monotonic": 77,
}
OF_A_READING: dict[str, Any] = {
    "index": 1,
    "name": "uno-1:adc0",
    "unit": "mV",
    "value": 0.5,
    "time": UTC * 1_000_000 + HOUR_US,
    "time_certainty": "reckoned",
    "gateway": "elsewhere",
    "topic": "sensors/uno-2/adc0",
    "received": UTC * 1_000_000 + HOUR_US,
    "text": "x",
    "flag": True,
    "data": "00",
    "sum": 1.0,
    "quality": "absent",
}


def changed(events: list[Event], hops: tuple[str, ...], sequence: int, **data: Any) -> list[Event]:
    return [
        Event(e.t, e.hop, e.event, {**e.data, **data})
        if is_of(e, sequence) and e.hop in hops
        else e
        for e in events
    ]


@given(sequence=st.integers(1, COUNT), hop=st.integers(1, 3), name=st.sampled_from(list(OF_A_ROW)))
def test_changed_column_is_reported_as_altered_at_its_hop(
    sequence: int, hop: int, name: str
) -> None:
    # `boot` and `monotonic` come from the gateway: the previous hop has the expected values
    hop = max(hop, 2) if name in ("boot", "monotonic") else hop
    events = changed(run_of(COUNT), HOPS[hop:], sequence, **{name: OF_A_ROW[name]})
    result = check(events)
    assert result.verdict is Verdict.FAILS
    assert wrong(result) == [("uno-1", sequence, Outcome.ALTERED, HOPS[hop])]
    assert result.offenders[0].why


OF_THE_TABLE = {**OF_A_ROW, "batch": 99, "position": 99, "undecodable": "no SenML"}


@given(sequence=st.integers(1, COUNT), name=st.sampled_from(list(OF_THE_TABLE)))
def test_no_column_can_differ_between_the_table_and_the_landing_place(
    sequence: int, name: str
) -> None:
    events = changed(run_of(COUNT), ("table",), sequence, **{name: OF_THE_TABLE[name]})
    assert wrong(check(events)) == [("uno-1", sequence, Outcome.ALTERED, "table")]


def test_a_place_of_the_store_has_one_publication() -> None:
    one_further = [
        Event(e.t, e.hop, e.event, {**e.data, "position": e.data["position"] + 1})
        if e.event == "publication" and e.hop in ("batch", "table")
        else e
        for e in run_of(COUNT)
    ]
    result = check(one_further)
    assert result.verdict is Verdict.FAILS
    assert result.offenders[0].hop == "batch"
    assert "has the same place: site/e position 2" in result.offenders[0].why


def test_a_batch_has_no_more_rows_than_it_may() -> None:
    run, *events = until_batch(COUNT)  # a reading of each board in each batch
    for most, verdict in ((2, Verdict.HOLDS), (1, Verdict.FAILS)):
        told = Event(run.t, run.hop, run.event, {**run.data, "batch_count": most})
        result = check([told, *events])
        assert result.verdict is verdict
    assert result.reasons[0] == "batch 1 of site/e has 2 rows, but may have at most 1"


def test_a_batch_has_landed_when_its_manifest_was_written() -> None:
    landed = (UTC + 2) * 1_000_000 + 200_000
    assert check(changed(run_of(COUNT), ("batch",), 2, written=landed)).verdict is Verdict.HOLDS
    result = check(changed(run_of(COUNT), ("batch",), 2, written=landed + 2000))
    assert {one.hop for one in result.offenders} == {"table"}
    assert "its manifest was written at" in result.offenders[0].why


@given(sequence=st.integers(1, COUNT), name=st.sampled_from(list(OF_A_READING)))
def test_no_column_of_the_readings_can_be_another(sequence: int, name: str) -> None:
    result = check(changed(run_of(COUNT), (READINGS,), sequence, **{name: OF_A_READING[name]}))
    outcome = Outcome.LOST if name == "index" else Outcome.ALTERED
    assert wrong(result) == [("uno-1", sequence, outcome, READINGS)]
    assert result.offenders[0].why


@given(sequence=st.integers(1, COUNT), off=st.sampled_from([-2_000_000, 2_000_000, HOUR_US]))
def test_rows_of_one_start_count_from_one_moment(sequence: int, off: int) -> None:
    events = changed(run_of(COUNT), HOPS[1:], sequence, monotonic=sequence * 1_000_000 + off)
    assert (
        "the rows of site/e from start 1 on have no common beginning of `monotonic`"
        in check(events).reasons
    )


def test_both_clocks_of_a_row_tell_the_same() -> None:
    """Each of a row's two times may differ from the time of the sample by half a second. But the
    difference between the two times must be the same in all rows of a start, with less tolerance.
    """
    quarters = changed(run_of(COUNT), HOPS[1:], 2, monotonic=2_240_000)
    why = "`received` minus `monotonic` varies by 0.24 s among the rows of site/e from start 1 on"
    assert check(quarters).reasons == [why]
    jump = {"fault": "f", "kind": "clock jump", "shift": 10**9, "since": 0, "until": 1}
    assert why not in check([*quarters, Event(9, "gateway", "happened", jump)]).reasons


def in_starts(first: int, second: int, began_s: int) -> list[Event]:
    """Return a run in which the gateway starts once more in the middle, and `monotonic` then counts
    from `began_s`.
    """
    return [
        Event(
            e.t,
            e.hop,
            e.event,
            {**e.data, "boot": second, "monotonic": (e.data["sequence"] - began_s) * 1_000_000}
            if e.data["sequence"] > 2
            else {**e.data, "boot": first},
        )
        if e.event == "publication" and e.hop in HOPS[1:]
        else e
        for e in run_of(COUNT)
    ]


def test_starts_of_a_gateway_follow_each_other() -> None:
    assert check(in_starts(1, 2, 2)).verdict is Verdict.HOLDS
    assert check(in_starts(1, 9, 3)).verdict is Verdict.HOLDS
    assert check(in_starts(2, 1, 2)).reasons == [
        "in the spool of site/e, start 1 has rows after start 2's rows"
    ]
    # the count continues that of the previous start, or is that of the machine
    before = ["start 2 of site/e began before the run, or before an earlier sample"]
    assert check(in_starts(1, 2, 0)).reasons == before
    assert check(in_starts(1, 2, -3600)).reasons == before


def test_a_gateway_has_not_started_before_the_run() -> None:
    events = [
        Event(e.t, e.hop, e.event, {**e.data, "monotonic": e.data["monotonic"] + HOUR_US})
        if "monotonic" in e.data
        else e
        for e in run_of(COUNT)
    ]
    assert check(events).reasons == [
        "start 1 of site/e began before the run, or before an earlier sample"
    ]


def test_missing_readings_are_reported_as_lost_at_their_hop() -> None:
    gone = check(without(run_of(COUNT), (READINGS,), 2))
    assert wrong(gone) == [("uno-1", 2, Outcome.LOST, READINGS)]
    assert gone.offenders[0].why.startswith("no row for adc0=0.068359375 V at ")
    empty = check([event for event in run_of(COUNT) if event.event != "reading"])
    assert (empty.verdict, empty.reasons) == (Verdict.FAILS, [f"{2 * COUNT} lost"])


def test_double_and_unknown_readings_are_reported() -> None:
    events = run_of(COUNT)
    [row] = [event for event in events if is_of(event, 2) and event.hop == READINGS]
    assert wrong(check([*events, row])) == [("uno-1", 2, Outcome.DUPLICATE, READINGS)]
    more = Event(row.t, row.hop, row.event, {**row.data, "index": 1})
    assert wrong(check([*events, more])) == [("uno-1", 2, Outcome.PHANTOM, READINGS)]
    strange = Event(row.t, row.hop, row.event, {**row.data, "sequence": 99})
    assert wrong(check([*events, strange])) == [("uno-1", 99, Outcome.PHANTOM, READINGS)]


def test_a_reading_without_a_time_has_that_of_its_arrival() -> None:
    """The board did not know the time when it took the reading. It started again before the gateway
    received the reading.
    """
    bare = cbor2.dumps([{-2: "uno-1:", 0: "adc0", 1: "V", 2: 7 * 5 / 1024}]).hex()
    again = Event(S + S // 20, "board", "start", {"device": "uno-1", "cause": "x", "cycle": HZ})
    met = [e for e in run_of(COUNT) if e.hop != "wire"] + [
        Event(int(1.5 * S), "wire", "welcome", {"line": device, **seed(device)})
        for device in DEVICES
    ]
    events = [again, *changed(met, HOPS[1:], 1, payload=bare)]
    [row] = [e for e in events if is_of(e, 1) and e.hop == "table"]
    told = {"time": row.data["received"], "time_certainty": "unknown"}
    timed = changed(events, (READINGS,), 1, **told)
    offenders = {one.key.device for one in check(timed).offenders}
    assert offenders == {"uno-2"}  # it states a time, although nobody had told it the time
    assert ("uno-1", 1, Outcome.ALTERED, READINGS) in wrong(check(events))


def test_readings_of_a_batch_that_was_not_taken_to_its_end_are_under_way() -> None:
    key = {"device": "uno-1", "incarnation": INCARNATION, "sequence": 2}
    events = [*without(run_of(COUNT), (READINGS,), 2), Event(9, "batch", "waiting", key)]
    assert wrong(check(events)) == [("uno-1", 2, Outcome.UNKNOWN, "table")]


def test_a_message_that_is_no_senml_has_no_readings() -> None:
    events = of_client(2, "table")
    for undecodable, verdict in (("no SenML", Verdict.HOLDS), (None, Verdict.FAILS)):
        for event in events:
            if event.hop == "table" and event.event == "publication":
                event.data["undecodable"] = undecodable
        assert check(events).verdict is verdict
    events = of_client(2, "table")
    [row] = [event for event in run_of(1) if is_of(event, 1) and event.hop == READINGS]
    strange = {**row.data, "device": "client-1", "incarnation": 1}
    made = [*events, Event(row.t, READINGS, "reading", strange)]
    assert wrong(check(made)) == [("client-1", 1, Outcome.PHANTOM, READINGS)]


@pytest.mark.parametrize(
    "harm",
    [
        {"landed": None},
        {"ingested": None},
        {"landed": UTC * 1_000_000},
        {"landed": (UTC + 3) * 1_000_000 + 260_000},
        {"ingested": (UTC + 4) * 1_000_000},
    ],
)
def test_when_a_batch_landed_and_was_taken_is_judged(harm: dict[str, Any]) -> None:
    events = changed(run_of(COUNT), ("table",), 3, **harm)
    assert wrong(check(events)) == [("uno-1", 3, Outcome.ALTERED, "table")]


@pytest.mark.parametrize("name", ["topic", "received"])
def test_a_bench_that_ends_at_the_landing_place_judges_columns_too(name: str) -> None:
    events = changed(until_batch(COUNT), ("batch",), 3, **{name: OF_A_ROW[name]})
    assert wrong(check(events)) == [("uno-1", 3, Outcome.ALTERED, "batch")]


def test_known_columns_of_a_client_are_judged() -> None:
    def run(topic: str, received: int) -> list[Event]:
        events = [begin("batch", messages=1), Event(0, "rig", "clock", {"utc": UTC * S})]
        sent, *rows = (message(hop, 1, 2) for hop in HOPS[:3])
        sent.data["topic"] = "sensors/client-1/data"
        for row in rows:
            row.data.update(topic=topic, received=received, client="client-1")
        ends = [Event(9, hop, "complete") for hop in HOPS[:3]]
        events.append(Event(0, "rig", "armed", {"held": []}))
        return [*events, sent, *rows, *ends, Event(10, "rig", "end")]

    now = UTC * 1_000_000
    assert check(run("sensors/client-1/data", now)).verdict is Verdict.HOLDS
    for topic, received in (("x", now), ("sensors/client-1/data", now + HOUR_US)):
        assert wrong(check(run(topic, received))) == [("client-1", 1, Outcome.ALTERED, "spool")]


def volts(events: list[Event], factor: float) -> list[Event]:
    """Multiply the ADC's input voltages in the board's record by `factor`. The readings stay as
    they are.
    """
    made = []
    for event in events:
        if event.hop == "board" and event.event == "publication":
            ((name, value, time, unit),) = event.data["records"]
            data = {**event.data, "records": [[name, value * factor, time, unit]]}
            event = Event(event.t, event.hop, event.event, data)
        made.append(event)
    return made


def test_a_value_is_held_against_the_voltage_and_not_against_the_journal() -> None:
    result = check(volts(run_of(COUNT), 2))
    assert result.reasons == [f"{2 * COUNT} altered"]
    assert result.offenders[0].hop == "spool"
    assert ", not uno-1:adc0=0.0683594 V" in result.offenders[0].why


def test_a_gateway_whose_clock_is_wrong_shows_in_every_time() -> None:
    """Boards get the wrong time from the gateway. In a run without boards, only `received` would be
    wrong.
    """
    late = [
        Event(e.t, e.hop, e.event, {**e.data, "utc": e.data["utc"] - 3600 * S})
        if e.event == "clock"
        else e
        for e in run_of(COUNT)
    ]
    assert check(late).reasons == [f"{2 * COUNT} altered"]


def hurried(
    waited: float, count: int = 3, age: float = 2.0, most_bytes: int = 100_000
) -> list[str]:
    """Return the reasons on a run whose batch 2 lands `waited` seconds after its oldest sample.
    count: rows of batch 2, of at most 3. age, most_bytes: limits of a batch: its age in seconds and
    its size.
    """
    first, *others = until_batch(4)
    limits = {"batch_count": 3, "batch_age_s": age, "batch_bytes": most_bytes}
    run = Event(0, "rig", "run", {**first.data, **limits})
    events = []
    for one in others:
        data, taken = one.data, is_of(one, 2) or is_of(one, 2, "uno-2")
        if one.hop == "batch" and one.event == "publication":
            of_second = data["sequence"] == 2 and (data["device"] == "uno-1" or count > 1)
            written = data["sequence"] + (waited if taken else 4.0)
            data = {**data, "written": int((UTC + written) * 1_000_000)}
            data |= {"batch": 2 if of_second else 1 if data["sequence"] < 3 else 3}
        events.append(Event(one.t, one.hop, one.event, data))
    return [said for said in check([run, *events]).reasons if said.startswith("batch 2 ")]


def test_batch_that_is_neither_full_nor_old_is_reported() -> None:
    assert hurried(2.1) == []
    assert hurried(0.6) == [
        "batch 2 of site/e landed with 2 of 3 rows, but its oldest row was only 0.60 s old"
    ]
    assert hurried(0.6, age=0.5) == []


def test_size_of_a_batch_is_used_and_kept() -> None:
    row = max(
        len(bytes.fromhex(one.data["payload"])) + len(one.data["topic"])
        for one in until_batch(4)
        if one.hop == "batch" and one.event == "publication"
    )
    assert hurried(2.1, most_bytes=2 * row) == []
    assert hurried(0.6, most_bytes=2 * row) == []
    assert hurried(0.6, most_bytes=3 * row) == hurried(0.6) != []
    [said] = hurried(2.1, most_bytes=row)
    assert said.endswith(f"bytes, but may have at most {row}")


NAMELESS = {"device": "client-1", "incarnation": 1, "sequence": 2}


def of_nameless(**change: Any) -> list[str]:
    """Return the verdict's reasons on a run in which a client publishes three messages without an
    identity.
    """
    begun, *others = of_client(2, "table")
    bench = {**begun.data["bench"], "client": [{"messages": 3, "identity": False}]}
    events = [Event(0, "rig", "run", {**begun.data, "bench": bench})]
    for one in others:
        data = dict(one.data)
        if one.event == "publication":
            data["topic"] = "sensors/client-1/data"
        if one.event == "publication" and one.hop != "board":
            data |= {"client": "client-1", "origin": "site/000000ff"}
            given = {"device": "@site", "incarnation": 255, "batch": 1}
            data |= given if one.hop != "spool" else {"device": None, "incarnation": None}
            if data["sequence"] == 2 and one.hop == "table":
                data |= change
        events.append(Event(one.t, one.hop, one.event, data))
    return check(events).reasons


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"client": None}, "1 altered"),
        ({"client": "client-2"}, "1 altered"),
        ({"payload": "00"}, "1 lost"),
        ({"device": "@den"}, "has the device @den and the incarnation 255"),
        ({"incarnation": 1}, "has the device @site and the incarnation 1"),
        ({"sequence": 7}, "are not numbered 1, 2, … at hop `table`"),
    ],
)
def test_row_of_a_client_without_identity_is_known_by_its_content(
    change: dict[str, Any], why: str | None
) -> None:
    said = of_nameless(**change)
    assert said == [] if why is None else any(why in one for one in said), said
