"""Batches and payloads that the ingest has set aside need a reason."""

from typing import Any

import cbor2
import pytest

from hil.judge.checker import Verdict, check
from hil.observe.history import HOPS, Event
from tests.hil.judge.runs import INCARNATION, UTC, is_of, payload, run_of

US = UTC * 1_000_000
FAULT = {"fault": "landing/batch-damaged-1", "kind": "batch damaged at rest"}


def quarantined(epoch: str, batch: int = 2, **more: object) -> Event:
    said: dict[str, Any] = {"gateway": "site", "epoch": epoch, "batch": batch, "reason": "no hash"}
    said |= {"url": f"/landing/site/{epoch}/{batch:012d}.parquet", "found": US, "released": None}
    return Event(9, "table", "quarantined", {**said, **more})


def test_a_copy_that_a_fault_has_damaged_is_in_quarantine_and_nothing_else() -> None:
    planned, happened = Event(0, "rig", "planned", FAULT), Event(5, "landing", "happened", FAULT)
    good = [*run_of(3), planned, happened, quarantined("copy")]
    assert check(good).verdict is Verdict.HOLDS
    two = check([*good, quarantined("copy", 3)])
    assert two.reasons == ["2 copies of batches are in quarantine, but 1 to 1 were damaged"]
    none = check([*run_of(3), planned, happened])
    assert none.reasons == ["0 copies of batches are in quarantine, but 1 to 1 were damaged"]
    assert check([*run_of(3), quarantined("copy")]).verdict is Verdict.FAILS
    # the rig broke before it had read the tables
    unread = [
        *(one for one in good[:-1] if (one.hop, one.event) != ("table", "complete")),
        Event(9, "rig", "broken", {"why": "no disk", "last_words": []}),
    ]
    assert check(unread).verdict is Verdict.UNKNOWN
    # the end of the fault was not recorded, so this is unknown, but no failure
    assert check([*run_of(3), planned, quarantined("copy")]).verdict is Verdict.UNKNOWN


def test_a_batch_of_the_gateway_itself_is_never_in_quarantine() -> None:
    assert check([*run_of(3), quarantined("e")]).reasons == [
        "batch 2 of site/e is in quarantine, but no fault has damaged it"
    ]


@pytest.mark.parametrize("landed_twice", [False, True])
def test_a_conflict_is_between_two_payloads_that_landed(landed_twice: bool) -> None:
    key = {"device": "uno-1", "incarnation": INCARNATION, "sequence": 3}
    events = run_of(3)
    other = payload("uno-1", 21, 3).replace("6561646330", "6561646330")
    reworded = bytes.fromhex(other)
    conflict = {**key, "payload": reworded.hex() + "00", "gateway": "site", "epoch": "e"}
    conflict |= {"topic": "sensors/uno-1/adc0", "received": US + 3_050_000, "found": US}
    events.append(Event(9, "table", "conflict", {**conflict, "batch": 3}))
    if landed_twice:
        for event in run_of(3):
            if is_of(event, 3) and event.hop in HOPS[1:3]:
                data = {**event.data, "position": 99, "payload": conflict["payload"]}
                events.append(Event(event.t, event.hop, event.event, data))
    told = "uno-1 00c0ffee 3 is in `_conflicts`, but only one payload has landed under it"
    assert (told in check(events).reasons) is not landed_twice
    # the opposite: one payload, but an entry in `_conflicts`
    told = "uno-1 00c0ffee 3 has landed in two payloads, but the second is not in `_conflicts`"
    assert told not in check(events).reasons
    events = [event for event in events if event.event != "conflict"]
    assert (told in check(events).reasons) is landed_twice


@pytest.mark.parametrize(
    ("error", "time", "wrong", "value"),
    [(None, None, True, 21), (9, UTC + 3, True, 21), (None, None, False, 22)],
    ids=["without a time", "less sure of it", "another value"],
)
def test_a_board_may_put_a_reading_in_other_words(
    error: int | None, time: int | None, wrong: bool, value: int
) -> None:
    """A repeated reading may lack its time, or have a larger possible error. It is still a
    duplicate, so the gateway must not set it aside. wrong: whether setting this reading aside is a
    mistake.
    """
    record = {-2: "uno-1:", 0: "adc0", 1: "V", 2: value * 5 / 1024}
    record |= {} if time is None else {-3: time, "tu": error}
    again = cbor2.dumps([record]).hex()
    events = run_of(3)
    for event in run_of(3):
        if is_of(event, 3) and event.hop == "batch":
            data = {**event.data, "position": 99, "payload": again}
            events.append(Event(event.t, event.hop, event.event, data))
    due = "uno-1 00c0ffee 3 has landed in two payloads, but the second is not in `_conflicts`"
    assert (due in check(events).reasons) is not wrong
    key = {"device": "uno-1", "incarnation": INCARNATION, "sequence": 3, "gateway": "site"}
    aside = {**key, "payload": again, "epoch": "e", "batch": 3, "found": US}
    aside |= {"topic": "sensors/uno-1/adc0", "received": US + 3_050_000}
    events.append(Event(9, "table", "conflict", aside))
    told = "uno-1 00c0ffee 3 is in `_conflicts`, but only one payload has landed under it"
    assert (told in check(events).reasons) is wrong


def test_a_batch_that_a_fault_has_reworded_is_put_aside_and_nothing_else() -> None:
    events = [*run_of(3), Event(5, "landing", "reworded", {"origin": "site/copy"})]
    for event in run_of(3):
        if is_of(event, 2) and event.hop == "batch":
            said = {"origin": "site/copy", "payload": event.data["payload"] + "21", "batch": 1}
            events.append(Event(event.t, event.hop, event.event, {**event.data, **said}))
    assert check(events).reasons == [
        "uno-1 00c0ffee 2 has landed in two payloads, but the second is not in `_conflicts`"
    ]
    key = {"device": "uno-1", "incarnation": INCARNATION, "sequence": 2}
    aside = {**key, "payload": payload("uno-1", 14, 2) + "21", "gateway": "site", "epoch": "copy"}
    aside |= {"topic": "sensors/uno-1/adc0", "received": US + 2_050_000, "found": US}
    assert check([*events, Event(9, "table", "conflict", {**aside, "batch": 1})]).reasons == []
    told = "is in `_conflicts` as of batch 2 of site/copy, which does not have it"
    assert check([*events, Event(9, "table", "conflict", {**aside, "batch": 2})]).reasons == [
        f"uno-1 00c0ffee 2 {told}"
    ]


def test_batch_is_in_quarantine_for_a_reason() -> None:
    planned, happened = Event(0, "rig", "planned", FAULT), Event(5, "landing", "happened", FAULT)
    one = quarantined("copy", reason="")
    assert check([*run_of(3), planned, happened, one]).reasons == [
        "batch 2 of site/copy, in quarantine, has no reason"
    ]


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("url", "/landing/site/copy/000000000003.parquet", "has the path /landing/site/copy/0000"),
        ("url", "/elsewhere/site/copy/000000000002.parquet", "has the path /elsewhere/site/copy/"),
        ("found", US - 3_600_000_000, "was found at a wrong time: it is 2023-11-14T21:13:20"),
        ("found", US + 1_000_000, "was found at a wrong time: it is 2023-11-14T22:13:21"),
        ("found", None, "was found at a wrong time: it is missing"),
        ("released", US, "was released, but no repair was made"),
    ],
)
def test_columns_of_the_table_of_quarantine_are_right(column: str, value: Any, why: str) -> None:
    planned, happened = Event(0, "rig", "planned", FAULT), Event(5, "landing", "happened", FAULT)
    file: dict[str, Any] = {"origin": "site/copy", "batch": 2, "bytes": 9, "written": US}
    file["path"] = "/landing/site/copy/000000000002.parquet"
    run = [*run_of(3), planned, happened, Event(9, "landing", "landed", file)]
    assert check([*run, quarantined("copy")]).reasons == []
    [said] = check([*run, quarantined("copy", **{column: value})]).reasons
    assert said.startswith(f"batch 2 of site/copy, in quarantine, {why}")


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("topic", "sensors/uno-2/adc0", "with the topic 'sensors/uno-2/adc0', but landed with"),
        ("received", None, "with the received None, but landed with 1700000002050000"),
        ("found", US + 90_000_000, "found at a wrong time: it is 2023-11-14T22:14:50"),
        ("found", US - 9_000_000, "found at a wrong time: it is 2023-11-14T22:13:11"),
    ],
)
def test_columns_of_the_table_of_conflicts_are_right(column: str, value: Any, why: str) -> None:
    events = [*run_of(3), Event(5, "landing", "reworded", {"origin": "site/copy"})]
    [row] = [event for event in run_of(3) if is_of(event, 2) and event.hop == "batch"]
    said = {"origin": "site/copy", "payload": row.data["payload"] + "21", "batch": 1}
    events.append(Event(row.t, "batch", "publication", {**row.data, **said, "written": US}))
    aside = {"device": "uno-1", "incarnation": INCARNATION, "sequence": 2, "batch": 1}
    aside |= {"payload": said["payload"], "gateway": "site", "epoch": "copy", "found": US}
    aside |= {"topic": row.data["topic"], "received": row.data["received"]}
    assert check([*events, Event(9, "table", "conflict", aside)]).reasons == []
    [found] = check([*events, Event(9, "table", "conflict", {**aside, column: value})]).reasons
    assert found.startswith(f"uno-1 00c0ffee 2 is in `_conflicts`, {why}") or found.startswith(
        f"uno-1 00c0ffee 2 is in `_conflicts` {why}"
    )
