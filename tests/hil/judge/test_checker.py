"""The checker judges by the ledger and the table. It names the first hop that went wrong, and says
`holds` only with proof.
"""

import random
import re
from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import OncewayError
from hil.judge.checker import Verdict, check
from hil.judge.publication import Outcome
from hil.observe.history import HOPS, READINGS, Event
from tests.hil.judge.runs import (
    FITTING,
    HZ,
    INCARNATION,
    MET,
    UTC,
    S,
    at,
    at_board,
    begin,
    is_of,
    message,
    of_client,
    payload,
    reading,
    run_of,
    seed,
    until_batch,
    without,
    wrong,
)


@given(count=st.integers(1, 30), seed=st.integers())
def test_a_good_run_holds_in_any_order_of_its_events(count: int, seed: int) -> None:
    events = run_of(count)
    random.Random(seed).shuffle(events)
    result = check(events)
    assert result.verdict is Verdict.HOLDS
    assert result.reasons == []
    assert (
        result.summary()
        == f"{2 * count} produced · {2 * count} in the table · 0 lost · 0 doubled · 0 altered"
    )
    assert result.faults == {"kill": 1}


@given(count=st.integers(1, 10), data=st.data())
def test_no_event_of_ledger_or_table_can_be_missing_or_doubled_unnoticed(
    count: int, data: st.DataObject
) -> None:
    events = run_of(count)
    matter = [
        event
        for event in events
        if (event.hop in ("board", "table", READINGS) and event.event != "start")
        or event.event in ("happened", "end", "clock", "armed", "complete", "session", "count")
    ]
    victim = data.draw(st.sampled_from(matter))
    assert check(event for event in events if event is not victim).verdict is not Verdict.HOLDS
    if victim.event in ("publication", "reading"):
        assert check([*events, victim]).verdict is Verdict.FAILS


HARMS: dict[str, Callable[[list[Event], int, int], tuple[list[Event], Outcome, str]]] = {}


def harm(
    f: Callable[[list[Event], int, int], tuple[list[Event], Outcome, str]],
) -> Callable[[list[Event], int, int], object]:
    HARMS[f.__name__] = f
    return f


@harm
def lose(events: list[Event], sequence: int, hop: int) -> tuple[list[Event], Outcome, str]:
    return without(events, HOPS[hop:], sequence), Outcome.LOST, HOPS[hop]


@harm
def double(events: list[Event], sequence: int, hop: int) -> tuple[list[Event], Outcome, str]:
    again = [
        Event(e.t + 1, e.hop, e.event, {**e.data, "position": e.data["position"] + 10_000})
        for e in events
        if is_of(e, sequence) and e.hop in HOPS[hop:]
    ]
    last = [e for e in events if e.data.get("sequence", 0) > sequence]
    return ([e for e in events if e not in last] + again), Outcome.DUPLICATE, HOPS[hop]


@harm
def alter(events: list[Event], sequence: int, hop: int) -> tuple[list[Event], Outcome, str]:
    def change(event: Event) -> Event:
        if not (is_of(event, sequence) and event.hop in HOPS[hop:]):
            return event
        return Event(
            event.t,
            event.hop,
            event.event,
            {**event.data, "payload": payload("uno-1", 1000, sequence)},
        )

    return [change(event) for event in events], Outcome.ALTERED, HOPS[hop]


@harm
def forge(events: list[Event], sequence: int, hop: int) -> tuple[list[Event], Outcome, str]:
    return without(events, HOPS[:hop], sequence), Outcome.PHANTOM, HOPS[hop]


@given(
    name=st.sampled_from(sorted(HARMS)),
    count=st.integers(2, 12),
    hop=st.integers(1, 3),
    data=st.data(),
)
def test_every_harm_is_found_at_its_first_hop(
    name: str, count: int, hop: int, data: st.DataObject
) -> None:
    sequence = data.draw(st.integers(1, count))
    events, outcome, where = HARMS[name](run_of(count), sequence, hop)
    result = check(events)
    assert result.verdict is Verdict.FAILS
    assert wrong(result) == [("uno-1", sequence, outcome, where)]


@given(count=st.integers(2, 12), hop=st.integers(1, 2), data=st.data())
def test_disorder_is_found_at_its_first_hop(count: int, hop: int, data: st.DataObject) -> None:
    sequence = data.draw(st.integers(1, count - 1))

    def late(event: Event) -> Event:
        if not (is_of(event, sequence) and event.hop in HOPS[hop:]):
            return event
        return Event(event.t, event.hop, event.event, {**event.data, "position": 10_000})

    result = check(map(late, run_of(count)))
    assert wrong(result) == [("uno-1", sequence, Outcome.OUT_OF_ORDER, HOPS[hop])]
    assert result.summary().endswith("1 out of order")


@pytest.mark.parametrize(
    ("said", "excused"),
    [
        ({}, True),
        ({"reason": 0x97}, False),  # passes: the board waits with the next ones
        ({"packet": "pubcomp", "reason": 0x92}, False),
        ({"id": 3}, False),
        ({"line": "uno-2"}, False),
        ({"direction": "up"}, False),
    ],
)
def test_publication_refused_for_good_may_come_behind_later_ones(
    said: dict[str, Any], excused: bool
) -> None:
    late = [
        Event(e.t, e.hop, e.event, {**e.data, "position": 10_000})
        if is_of(e, 2) and e.hop in HOPS[1:]
        else e
        for e in run_of(4)
    ]
    refusal = {"line": "uno-1", "direction": "down", "packet": "pubrec", "id": 2, "reason": 0x87}
    events = [*late, Event(2 * S, "wire", "refused", {**refusal, **said})]
    assert wrong(check(events)) == (
        [] if excused else [("uno-1", 2, Outcome.OUT_OF_ORDER, "spool")]
    )


@pytest.mark.parametrize(
    ("count", "reason", "planned", "outcome"),
    [
        (62, 0x87, True, Outcome.GAVE_WAY),
        (61, 0x87, True, Outcome.LOST),  # its slot was not needed
        (62, 0x97, True, Outcome.LOST),  # a temporary reason
        (62, 0x87, False, Outcome.LOST),  # the gateway had no cause to refuse it
    ],
)
def test_publication_refused_for_good_may_give_its_slot_away(
    count: int, reason: int, planned: bool, outcome: Outcome
) -> None:
    [begin, *events] = run_of(count)
    fault = {"id": "uno-1/denied", "text": "publication refused for good"}
    plan = {**begin.data["plan"], "faults": [fault] if planned else []}
    told = Event(begin.t, begin.hop, begin.event, {**begin.data, "plan": plan})
    kept = [e for e in events if not (is_of(e, 2) and e.hop in HOPS[1:])]
    refusal = {"line": "uno-1", "direction": "down", "packet": "pubrec", "id": 2}
    result = check([told, *kept, Event(2 * S, "wire", "refused", {**refusal, "reason": reason})])
    [found] = [one for one in result.publications if one.outcome is not Outcome.OK]
    assert (found.key.sequence, found.outcome) == (2, outcome)


@given(count=st.integers(2, 12), hop=st.integers(1, 3), data=st.data())
def test_publication_held_by_a_hop_is_unknown_and_not_lost(
    count: int, hop: int, data: st.DataObject
) -> None:
    late, lost = data.draw(st.lists(st.integers(1, count), min_size=2, max_size=2, unique=True))
    held = Event(
        9,
        HOPS[hop - 1],
        "waiting",
        {"device": "uno-1", "incarnation": INCARNATION, "sequence": late},
    )
    events = without([*run_of(count), Event(9, "rig", "stalled"), held], HOPS[hop:], late)
    result = check(events)
    assert result.verdict is Verdict.UNKNOWN
    assert result.reasons == [
        "nothing moved any more, and the run gave up waiting",
        "1 still under way when the run gave up waiting",
    ]
    assert wrong(result) == [("uno-1", late, Outcome.UNKNOWN, HOPS[hop - 1])]
    assert result.summary().endswith("0 lost · 0 doubled · 0 altered · 1 unknown")
    both = check(without(events, HOPS[hop:], lost))
    assert both.verdict is Verdict.FAILS
    assert sorted(outcome for _, _, outcome, _ in wrong(both)) == [Outcome.LOST, Outcome.UNKNOWN]


def test_an_interrupted_run_has_lost_nothing_that_is_known() -> None:
    events = [
        event
        for event in without(run_of(3), ("batch", "table"), 2)
        if event.event not in ("complete", "end")
    ]
    result = check(events)
    assert result.verdict is Verdict.UNKNOWN
    assert wrong(result) == [("uno-1", 2, Outcome.UNKNOWN, "spool")]


def test_a_hop_that_held_one_once_owes_nothing_that_has_gone_on() -> None:
    held = [
        Event(9, hop, "waiting", {"device": "uno-1", "incarnation": INCARNATION, "sequence": 1})
        for hop in HOPS[:3]
    ]
    assert check([*run_of(2), *held]).verdict is Verdict.HOLDS
    assert wrong(check(without([*run_of(2), held[0]], ("table",), 1))) == [
        ("uno-1", 1, Outcome.LOST, "table")
    ]


def test_a_double_that_the_ingest_healed_is_no_failure() -> None:
    events = run_of(3)
    twice = [
        Event(e.t, e.hop, e.event, {**e.data, "position": 99})
        for e in events
        if is_of(e, 3) and e.hop in ("spool", "batch")
    ]
    assert check(events + twice).verdict is Verdict.HOLDS


def test_a_sequence_used_for_two_samples_is_the_boards_fault() -> None:
    result = check([*run_of(3), at_board("uno-1", 2, 500)])
    assert wrong(result) == [("uno-1", 2, Outcome.DUPLICATE, "board")]


def test_a_ledger_that_contradicts_itself_fails_the_run() -> None:
    event = Event(
        5,
        "board",
        "contradiction",
        {"device": "uno-1", "text": "the record of 2 became complete after that of 3"},
    )
    result = check([*run_of(3), event])
    assert result.verdict is Verdict.FAILS
    assert result.reasons == [
        "the ledger of uno-1 contradicts itself: the record of 2 became complete after that of 3"
    ]


def test_a_status_is_judged_alike_and_counted_apart() -> None:
    def row(hop: str, boot: int) -> Event:
        found = at(hop, "uno-1", 3, 0, 9)
        pack = [{-2: "uno-1:", -3: UTC + 3, 0: "boot", 2: boot}, {0: "cause", 2: 1}]
        pack += [{0: "bad", 2: 17}, {0: "again", 2: 3}]  # how the link was when it was sent
        found.data.update(payload=cbor2.dumps(pack).hex(), topic="sensors/uno-1/status")
        return found

    board = at_board("uno-1", 3, 0)
    records = [["uno-1:boot", 4, None, None], ["uno-1:cause", 1, None, None]]
    board.data.update(kind="status", records=records, topic="sensors/uno-1/status")
    tabled = []
    for index, (name, value) in enumerate((("boot", 4), ("cause", 1), ("bad", 17), ("again", 3))):
        tabled.append(reading("uno-1", 3, 0))
        tabled[-1].data.update(index=index, name=name, unit=None, value=value)
        tabled[-1].data.update(topic="sensors/uno-1/status")
    events = [*run_of(2), board, *tabled]
    rows = [row(hop, 4) for hop in HOPS[1:]]
    result = check([*events, *rows])
    assert result.verdict is Verdict.HOLDS
    assert (result.produced, result.rows, result.statuses) == (4, 4, 1)
    assert wrong(check([*events, *rows[:-1]])) == [("uno-1", 3, Outcome.LOST, "table")]
    altered = check([*events, *(row(hop, 5) for hop in HOPS[1:])])
    assert wrong(altered) == [("uno-1", 3, Outcome.ALTERED, "spool")]
    assert altered.offenders[0].why == (
        "its payload says uno-1:boot=5, uno-1:cause=1, not uno-1:boot=4, uno-1:cause=1"
    )


def test_a_board_that_never_got_through_is_named_as_the_cause() -> None:
    """The reasons name a board only if all its publications are in flight, and none has reached the
    gateway.
    """
    key = {"device": "uno-2", "incarnation": INCARNATION}
    held = [Event(9, "board", "waiting", {**key, "sequence": n}) for n in (1, 2, 3)]
    kept_out = "nothing of uno-2 reached the gateway"
    events = [*run_of(3), Event(9, "rig", "stalled"), *held]
    for sequence in (1, 2, 3):
        events = without(events, HOPS[1:], sequence, "uno-2")
        result = check(events)
        assert result.verdict is Verdict.UNKNOWN
        assert (kept_out in result.reasons) == (sequence == 3)
    reasons = check(events).reasons
    assert reasons.index("3 still under way when the run gave up waiting") + 1 == reasons.index(
        kept_out
    )
    lost = [event for event in events if event not in held]
    assert check(lost).verdict is Verdict.FAILS


def test_a_payload_that_does_not_decode_is_altered() -> None:
    events = [
        Event(e.t, e.hop, e.event, {**e.data, "payload": "ff00"})
        if is_of(e, 2) and e.hop == "table"
        else e
        for e in run_of(2)
    ]
    assert wrong(check(events)) == [("uno-1", 2, Outcome.ALTERED, "table")]


def test_a_bench_that_ends_at_the_landing_place_claims_its_batches() -> None:
    start, *others = [event for event in run_of(2) if event.hop != "table"]
    start.data["bench"]["until"] = "batch"
    events = others
    landed = [start, *events]
    assert check(landed).verdict is Verdict.HOLDS
    assert check(landed).summary() == "4 produced · 4 landed · 0 lost · 0 doubled · 0 altered"
    unread = [event for event in landed if (event.hop, event.event) != ("batch", "complete")]
    assert check(unread).reasons == ["hop batch was not read to the end"]
    assert wrong(check(without(landed, ("batch",), 1))) == [("uno-1", 1, Outcome.LOST, "batch")]


def test_publication_requested_again_may_land_again() -> None:
    landed = until_batch(3)
    copies = [
        Event(e.t, e.hop, e.event, {**e.data, "position": 99})
        for e in landed
        if is_of(e, 2) and e.hop in ("spool", "batch")
    ]
    key = {"device": "uno-1", "incarnation": INCARNATION, "sequence": 2}
    again = Event(5, "board", "again", key)
    refused = Event(
        4, "wire", "refused", {"line": "uno-1", "direction": "down", "id": 2, "reason": 0x92}
    )
    doubled = [("uno-1", 2, Outcome.DUPLICATE, "spool")]
    assert wrong(check([*landed, *copies])) == doubled
    assert check([*landed, *copies, again, refused]).verdict is Verdict.HOLDS
    assert wrong(check([*landed, *copies, *copies, again, refused])) == doubled
    # the board's word alone excuses nothing; a publication sent again excuses one copy
    assert wrong(check([*landed, *copies, again])) == doubled
    assert wrong(check([*landed, *copies, refused])) == doubled
    assert wrong(check([*landed, *copies, *copies, again, refused, refused])) == doubled
    # another board, another identifier, the other direction
    others = (("uno-2", 2, "down"), ("uno-1", 3, "down"), ("uno-1", 2, "up"))
    for line, identifier, direction in others:
        said = {"line": line, "id": identifier, "reason": 0x92, "direction": direction}
        other = Event(4, "wire", "refused", said)
        assert wrong(check([*landed, *copies, again, other])) == doubled
    altered = [
        Event(e.t, e.hop, e.event, {**e.data, "payload": payload("uno-1", 1000, 2)}) for e in copies
    ]
    assert wrong(check([*landed, *altered, again, refused])) == [
        ("uno-1", 2, Outcome.ALTERED, "spool")
    ]
    at_the_table = [
        again,
        refused,
        *(e for e in run_of(3)),
        *(e for e in run_of(3) if is_of(e, 2) and e.hop == "table"),
    ]
    assert wrong(check(at_the_table)) == [("uno-1", 2, Outcome.DUPLICATE, "table")]


@pytest.mark.parametrize("run", [run_of, until_batch])
def test_two_rows_with_one_key_at_the_landing_place_are_never_silent(
    run: Callable[[int], list[Event]],
) -> None:
    """A second row with the key of another row is a duplicate, whatever its batch, position and
    payload. A row with another payload in place of the first row is altered.
    """
    events = run(3)
    [row] = [e for e in events if is_of(e, 2) and e.hop == "batch"]

    def second(**other: object) -> Event:
        return Event(row.t, row.hop, row.event, {**row.data, **other})

    doubled = [("uno-1", 2, Outcome.DUPLICATE, "batch")]
    later = {"batch": 3, "position": 99}
    another = {"payload": payload("uno-1", 1000, 2)}
    for harm in ({}, {"position": 99}, {"batch": 3}, later, another, {**later, **another}):
        assert wrong(check([*events, second(**harm)])) == doubled, harm
    in_its_place = [*(e for e in events if e is not row), second(**another)]
    [(*_, outcome, hop)] = wrong(check(in_its_place))
    assert (outcome, hop) == (Outcome.ALTERED, "batch")


def test_a_copy_of_a_batch_by_a_fault_doubles_nothing_but_may_not_be_another() -> None:
    """A fault copies the file of a batch to an epoch of no store of the run. One copy of a row is
    accepted, but a second copy, or a copy with another payload, is not.
    """
    events = run_of(3)
    [row] = [e for e in events if is_of(e, 2) and e.hop == "batch"]
    copy = Event(row.t, row.hop, row.event, {**row.data, "origin": "site/copy", "batch": 1})
    assert check([*events, copy]).verdict is Verdict.HOLDS
    twice = check([*events, copy, copy])
    assert wrong(twice) == [("uno-1", 2, Outcome.DUPLICATE, "batch")]
    other = {**copy.data, "payload": payload("uno-1", 1000, 2)}
    altered = check([*events, Event(row.t, row.hop, row.event, other)])
    assert wrong(altered) == [("uno-1", 2, Outcome.ALTERED, "batch")]


def test_publication_repeated_after_a_start_has_no_time() -> None:
    """uno-1 samples before its first WELCOME, and can then still compute the time of the sample.
    After a restart, it cannot, so the repeated publication has no time.
    """
    met, restarted = S + S // 20, 5 * S // 2
    landed = [
        Event(met, e.hop, e.event, e.data)
        if e.t == MET and e.hop == "wire" and e.data["line"] == "uno-1"
        else e
        for e in until_batch(3)
    ]
    start = {"device": "uno-1", "cause": "power-on", "cycle": restarted * HZ // S}
    session = {"line": "uno-1", **seed("uno-1"), "boot": 2}
    new = [
        Event(restarted, "board", "start", start),
        Event(restarted, "wire", "welcome", session),
        Event(4 * S, "wire", "session", {**session, "up": FITTING, "down": FITTING}),
    ]
    timeless = cbor2.dumps([{-2: "uno-1:", 0: "adc0", 1: "V", 2: 7 * 5 / 1024}]).hex()

    def copies(t: int) -> list[Event]:
        late = {"position": 99, "payload": timeless, "received": (UTC * S + t) // 1000}
        late["monotonic"] = t // 1000
        return [
            Event(t, e.hop, e.event, {**e.data, **late})
            for e in landed
            if is_of(e, 1) and e.hop in ("spool", "batch")
        ]

    key = {"device": "uno-1", "incarnation": INCARNATION, "sequence": 1}
    again = Event(3 * S, "board", "again", key)
    refusal = {"line": "uno-1", "direction": "down", "id": 1, "reason": 0x92}
    asked = [*landed, *new, again, Event(3 * S, "wire", "refused", refusal)]
    assert check([*asked, *copies(3 * S)]).reasons == []
    assert wrong(check([*asked, *copies(2 * S)])) == [("uno-1", 1, Outcome.ALTERED, "spool")]


def test_publication_repeated_in_a_new_session_may_land_once_more() -> None:
    landed = until_batch(3)
    copies = [
        Event(e.t, e.hop, e.event, {**e.data, "position": 99})
        for e in landed
        if is_of(e, 2) and e.hop in ("spool", "batch")
    ]
    said = {"line": "uno-1", "session_present": False, "reason": 0}
    asked = {"incarnation": INCARNATION, "clean": True}
    new = Event(3 * S, "wire", "connack", {**said, **asked})
    sent, again = (
        Event(t, "wire", "publish", {"line": "uno-1", "direction": "up", "id": 2})
        for t in (2 * S, 4 * S)
    )
    good = [*landed, *copies, sent, new, again]
    assert check(good).verdict is Verdict.HOLDS
    doubled = [("uno-1", 2, Outcome.DUPLICATE, "spool")]
    for missing in (sent, new, again):
        assert wrong(check([event for event in good if event is not missing])) == doubled
    assert wrong(check([*good, *copies])) == doubled
    for harmless in ({"line": "uno-2"}, {"session_present": True}, {"reason": 0x88}):
        other = Event(new.t, new.hop, new.event, {**new.data, **harmless})
        assert wrong(check([*landed, *copies, sent, other, again])) == doubled
    # the table never has a reading twice
    row = [event for event in run_of(3) if is_of(event, 2) and event.hop == "table"]
    assert wrong(check([*run_of(3), *row, sent, new, again])) == [
        ("uno-1", 2, Outcome.DUPLICATE, "table")
    ]


def test_two_gateways_have_no_common_order() -> None:
    events = [
        Event(e.t, e.hop, e.event, {**e.data, "origin": "site/f", "position": 1, **batch})
        if is_of(e, 3) and e.hop in HOPS[1:]
        else e
        for e in run_of(3)
        for batch in [{} if e.hop == "spool" else {"batch": 1}]
    ]
    assert check(events).verdict is Verdict.HOLDS


def test_cut_of_a_history_is_reported_first() -> None:
    """The incomplete history may be the only reason why publications are missing."""
    events = run_of(3)
    for length in range(1, len(events) - 1):
        result = check(events[:length])
        if result.verdict is Verdict.UNKNOWN:
            assert result.reasons[0] == "the history breaks off", length
        else:
            assert "the history breaks off" in result.reasons


GAVE_UP = "nothing moved any more, and the run gave up waiting"


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (run_of(3, fault=False), "planned fault did not happen: gateway/kill-1 (kill)"),
        (
            [e for e in run_of(3) if (e.hop, e.event) != ("table", "complete")],
            "hop table was not read to the end",
        ),
        (
            [e for e in run_of(3) if (e.hop, e.event) != ("board", "complete")],
            "hop board was not read to the end",
        ),
        ([e for e in run_of(3) if e.event != "end"], "the history breaks off"),
        (
            [e for e in run_of(3) if (e.hop, e.event) != ("spool", "complete")],
            "hop spool was not read to the end",
        ),
        (
            [e for e in run_of(3) if e.event != "armed"],
            "the history does not say that all faults and observers were armed before the first"
            " publication",
        ),
        (
            [e for e in run_of(3) if (e.event, e.data.get("line")) != ("count", "uno-1")],
            "the wire of uno-1 has not reported its final counts",
        ),
        (
            [e for e in run_of(3) if (e.event, e.data.get("line")) != ("session", "uno-2")],
            "the wire of uno-2 has not reported on 1 of its sessions",
        ),
        (run_of(0), "no publication was produced"),
        ([*run_of(3), Event(9, "rig", "stalled")], GAVE_UP),
        (
            [e for e in run_of(3) if e.event != "publication" or e.hop != "spool"],
            "no publication was seen at hop spool",
        ),
        (
            [e for e in run_of(3) if not is_of(e, 3, "uno-2")],
            "uno-2 produced 2 of 3 planned publications",
        ),
        (
            [e for e in run_of(3) if e.data.get("device") != "uno-2" or e.event == "start"],
            "uno-2 produced 0 of 3 planned publications",
        ),
        (
            [e for e in run_of(3) if (e.event, e.data.get("device")) != ("start", "uno-2")],
            "the ledger of uno-2 reports no start",
        ),
        (
            [e for e in of_client(2) if not is_of(e, 1, "client-1")],
            "client-1 produced 2 of 3 planned publications",
        ),
    ],
)
def test_unseen_publication_is_unknown(events: list[Event], reason: str) -> None:
    result = check(events)
    assert result.verdict is Verdict.UNKNOWN
    assert result.reasons == [reason]


def test_more_than_planned_is_no_doubt() -> None:
    events = run_of(4)
    events[0] = begin("table", 3)
    assert check(events).verdict is Verdict.HOLDS


def test_missing_hop_of_a_system_is_not_judged() -> None:
    """The rig measures a system other than Onceway, in which some hops do not exist."""
    events = [e for e in run_of(3) if e.hop not in ("spool", READINGS)]
    events[0].data["hops"] = ["board", "batch", "table"]
    assert check(events).verdict is Verdict.HOLDS
    for event in events:  # a clock without records is not judged either
        event.data.pop("sampled", None)
    assert check(e for e in events if e.event != "welcome").verdict is Verdict.HOLDS


def test_a_failure_outweighs_a_doubt() -> None:
    result = check(without(run_of(3, fault=False), ("table",), 1))
    assert result.verdict is Verdict.FAILS
    assert result.reasons == ["1 lost", "planned fault did not happen: gateway/kill-1 (kill)"]


def test_unsent_publications_of_a_swapped_board_are_not_lost() -> None:
    left = Event(9, "board", "left", {"device": "uno-1", "incarnation": INCARNATION, "sequence": 2})
    unsent = check([*without(run_of(3), HOPS[1:], 2), left])
    assert (unsent.verdict, unsent.offenders) == (Verdict.HOLDS, [])
    assert wrong(unsent) == [("uno-1", 2, Outcome.LEFT, "board")]
    assert (
        unsent.summary()
        == "6 produced · 5 in the table · 0 lost · 0 doubled · 0 altered · 1 left behind"
    )
    assert wrong(check([*without(run_of(3), HOPS[2:], 2), left])) == [
        ("uno-1", 2, Outcome.LOST, "batch")
    ]
    assert check([*run_of(3), left]).verdict is Verdict.HOLDS


def test_a_fault_that_cannot_happen_on_this_machine_says_why() -> None:
    result = check(
        [
            *run_of(2, fault=False),
            Event(1, "rig", "impossible", {"fault": "gateway/kill-1", "why": "it needs root"}),
        ]
    )
    assert result.verdict is Verdict.UNKNOWN
    assert result.reasons == ["planned fault did not happen: gateway/kill-1 (kill): it needs root"]


def commanded(*sent: int, obeyed: list[int]) -> list[Event]:
    events = [
        Event(10 * at, "rig", "command", {"device": "uno-1", "interval": interval})
        for at, interval in enumerate(sent)
    ]
    return events + [
        Event(
            10 * at + 5, "board", "obeyed", {"device": "uno-1", "interval": interval, "cycle": at}
        )
        for at, interval in enumerate(obeyed)
    ]


@pytest.mark.parametrize(
    "obeyed", [[], [201], [202, 201], [201, 202, 201], [201, 202, 203], [201, 201, 202]]
)
def test_a_command_that_is_not_obeyed_once_and_in_order_fails_the_run(obeyed: list[int]) -> None:
    result = check(run_of(1) + commanded(201, 202, obeyed=obeyed))
    told = ", ".join(map(str, obeyed)) or "none"
    assert result.verdict is Verdict.FAILS
    assert result.reasons[0] == f"uno-1 was given the intervals 201, 202, but obeyed {told}"


def test_commands_obeyed_once_hold_and_an_interrupted_run_says_nothing_of_the_rest() -> None:
    good = run_of(4) + commanded(900, 1000, obeyed=[900, 1000])
    random.Random(1).shuffle(good)
    result = check(good)
    assert (result.verdict, result.commands) == (Verdict.HOLDS, 2)
    broken_off = [event for event in run_of(4) if event.event != "end"] + commanded(
        1000, 1020, obeyed=[1000]
    )
    assert check(broken_off).verdict is Verdict.UNKNOWN


@given(count=st.integers(5, 12), told=st.sampled_from((900, 920, 1080, 1100)))
def test_a_command_that_is_noted_and_not_obeyed_fails_the_run(count: int, told: int) -> None:
    """The board continues to sample once a second, although its EEPROM has another interval."""
    noted = commanded(1000, told, obeyed=[1000, told])
    noted[-1].data["cycle"] = HZ // 2
    result = check([*run_of(count), *noted])
    assert result.verdict is Verdict.FAILS
    assert result.reasons[0].startswith("uno-1 recorded a command, but took ")
    samples, _, due = map(int, re.findall(r"\d+", result.reasons[0].partition("took")[2]))
    assert due == samples * told
    # another start reads the EEPROM: its samples are a separate stretch
    again = [
        Event(n * S + S // 2, "board", "start", said)
        for n in range(1, count)
        for said in [{"device": "uno-1", "cause": "external", "cycle": n * HZ + HZ // 2}]
    ]
    assert check([*run_of(count), *noted, *again]).reasons[-1] == (
        "uno-1 took too few samples after each command to show that it obeys"
    )


def test_a_sample_that_waits_for_the_eeprom_is_no_disobedience() -> None:
    events = run_of(6) + commanded(1000, obeyed=[1000])
    for event in events:
        if is_of(event, 3) and event.hop == "board":
            event.data["cycle"] += HZ * 17 // 100
    assert check(events).verdict is Verdict.HOLDS


def test_conversions_that_became_no_reading_count_as_samples() -> None:
    events = without(run_of(6), HOPS, 4)
    events = [event for event in events if not (event.hop == READINGS and is_of(event, 4))]
    events += commanded(1000, obeyed=[1000])
    assert "uno-1 recorded a command, but took" in check(events).reasons[0]
    for event in events:
        if event.hop == "board" and is_of(event, 5):
            event.data["records"].append(["uno-1:missed", 1, None, None])
    assert not any("noted" in reason for reason in check(events).reasons)


BROKEN = Event(5, "rig", "broken", {"why": "no more memory", "last_words": ["killed"]})
DIED = Event(5, "gateway", "ended", {"how": "exit code 1", "last_words": ["a traceback"]})


def test_program_that_ended_by_itself_fails_the_run() -> None:
    result = check([*run_of(3), DIED])
    assert (result.verdict, result.reasons) == (
        Verdict.FAILS,
        ["gateway ended by itself (exit code 1)"],
    )
    assert result.last_words == {"gateway": ["a traceback"]}


def test_internal_error_of_a_program_fails_the_run() -> None:
    erred = Event(5, "gateway", "erred", {"error": "AttributeError: no `when`"})
    result = check([*run_of(3), erred, erred])
    assert (result.verdict, result.reasons) == (
        Verdict.FAILS,
        ["gateway met an internal error: AttributeError: no `when`"],
    )


def test_a_rig_that_broke_proves_nothing() -> None:
    result = check([*run_of(3), BROKEN])
    assert (result.verdict, result.reasons) == (Verdict.UNKNOWN, ["the rig broke: no more memory"])
    assert result.last_words == {"no more memory": ["killed"]}
    # a lost reading is a failure nevertheless
    assert check([*without(run_of(3), HOPS[2:], 2), BROKEN]).verdict is Verdict.FAILS


def test_commands_that_were_under_way_when_the_rig_broke_are_not_disobeyed() -> None:
    sent = [
        Event(1, "rig", "command", {"device": "uno-1", "interval": interval})
        for interval in (201, 202)
    ]
    obeyed = Event(2, "board", "obeyed", {"device": "uno-1", "interval": 201, "cycle": 4 * HZ})
    assert check([*run_of(3), *sent, obeyed]).verdict is Verdict.FAILS
    assert check([*run_of(3), *sent, obeyed, BROKEN]).verdict is Verdict.UNKNOWN


def test_commands_are_counted_apart_from_faults() -> None:
    planned = Event(0, "rig", "planned", {"fault": "uno-1/command-1", "kind": "command"})
    sent = Event(1, "uno-1", "happened", {"fault": "uno-1/command-1", "kind": "command"})
    assert check([*run_of(3), planned, sent]).faults == {"kill": 1}
    assert check([*run_of(3), planned]).verdict is Verdict.UNKNOWN  # but they must have been sent


@pytest.mark.parametrize("until", ["batch", "table"])
@pytest.mark.parametrize(
    ("qos", "lost", "doubled"),
    [
        (0, Outcome.UNDELIVERED, Outcome.DUPLICATE),
        (1, Outcome.LOST, Outcome.DUPLICATE),
        (2, Outcome.LOST, Outcome.DUPLICATE),
    ],
)
def test_a_message_is_judged_by_its_qos(
    until: str, qos: int, lost: Outcome, doubled: Outcome
) -> None:
    events = of_client(qos, until)
    assert check(events).verdict is Verdict.HOLDS
    gone = check(
        [event for event in events if event.hop == "board" or not is_of(event, 2, "client-1")]
    )
    assert wrong(gone) == [("client-1", 2, lost, "spool")]
    assert gone.verdict is (Verdict.HOLDS if qos == 0 else Verdict.FAILS)
    later = check(
        [event for event in events if event.hop != until or not is_of(event, 2, "client-1")]
    )
    # the gateway had the message, so it must not lose it, whatever the QoS
    assert wrong(later) == [("client-1", 2, Outcome.LOST, until)]
    twice = check(
        [*events, *(message(hop, 2, qos, position=9) for hop in HOPS[1 : HOPS.index(until) + 1])]
    )
    if until == "table":
        doubled = Outcome.DUPLICATE  # its identity is in the table once, at any QoS
    assert [outcome for _, _, outcome, _ in wrong(twice)] == [doubled]
    other = check(
        [
            message("batch", 2, qos, text="y")
            if event.hop == until and is_of(event, 2, "client-1")
            else event
            for event in events
        ]
    )
    assert [outcome for _, _, outcome, _ in wrong(other)] == [
        Outcome.ALTERED if until == "batch" else Outcome.LOST
    ]


def test_qos_0_loss_is_reported_and_allowed() -> None:
    result = check(
        [event for event in of_client(0) if event.hop == "board" or not is_of(event, 2, "client-1")]
    )
    assert (
        result.summary()
        == "3 produced · 2 landed · 0 lost · 0 doubled · 0 altered · 1 not delivered"
    )
    assert result.offenders == []
    broken_off = [
        event for event in of_client(0) if event.hop == "board" and event.event != "complete"
    ]
    assert {outcome for _, _, outcome, _ in wrong(check(broken_off))} == {Outcome.UNKNOWN}


def test_a_refused_message_may_land_once_more() -> None:
    copy = message("batch", 2, 2, position=9)
    again = Event(5, "board", "again", {"device": "client-1", "incarnation": 1, "sequence": 2})
    assert check([*of_client(2), copy, again]).verdict is Verdict.HOLDS
    assert check([*of_client(2), copy, copy, again]).verdict is Verdict.FAILS


def test_at_qos_1_a_message_lands_as_often_as_it_was_sent_at_most() -> None:
    copy = message("batch", 2, 1, position=9)
    key = {"device": "client-1", "incarnation": 1, "sequence": 2}
    for event in ("resent", "again"):
        said = Event(5, "board", event, key)
        assert check([*of_client(1), copy, said]).verdict is Verdict.HOLDS
        assert check([*of_client(1), copy, copy, said]).verdict is Verdict.FAILS


def test_messages_in_flight_for_a_client_are_counted() -> None:
    key = {"device": "client-1", "incarnation": 1, "sequence": 2}
    events = [Event(5, "board", event, key) for event in ("forgotten", "again")]
    assert check([*of_client(2), *events]).reasons == [
        "the gateway has forgotten the flow of client-1 00000001 2"
    ]


UNASKED = {"packet": "pubcomp", "id": 2}


@pytest.mark.parametrize(
    ("event", "who"),
    [
        (Event(5, "wire", "unasked", {"line": "uno-1", "direction": "down", **UNASKED}), "gateway"),
        (Event(5, "wire", "unasked", {"line": "uno-1", "direction": "up", **UNASKED}), "board"),
    ],
)
def test_unexpected_answer_fails_the_run(event: Event, who: str) -> None:
    result = check([*run_of(3), event])
    assert (result.verdict, result.reasons) == (
        Verdict.FAILS,
        [
            f"the {who} on the line of uno-1 sent 1 PUBCOMP for packets that the other end had not"
            " sent"
        ],
    )


def test_unasked_answer_to_a_client_fails_the_run() -> None:
    event = Event(5, "board", "unasked", {"device": "client-1", **UNASKED})
    assert check([*of_client(2), event]).reasons == [
        "the gateway on a connection of client-1 sent 1 PUBCOMP for packets that the other end had"
        " not sent"
    ]


def test_a_line_that_could_not_be_read_along_proves_nothing() -> None:
    event = Event(5, "wire", "unread", {"line": "uno-1", "direction": "up", "why": "kind 0"})
    result = check([*run_of(3), event])
    assert (result.verdict, result.reasons) == (
        Verdict.UNKNOWN,
        ["what left the board on the line of uno-1 is not MQTT: kind 0"],
    )


def test_batches_are_numbered_without_gaps() -> None:
    events = [
        Event(e.t, e.hop, e.event, {**e.data, "batch": e.data["batch"] + 1})
        if e.event == "publication" and e.data.get("batch", 0) > 1
        else e
        for e in until_batch(3)
    ]
    assert check(events).reasons == ["site/e has no batch 2, but later ones"]


@pytest.mark.parametrize(
    ("first", "behind", "reasons"),
    [
        (1, 10**12, ["site/e has no batch 1 to 1000000000000, but later ones"]),
        (10**12 + 1, 10**12, []),
        (10**12 + 2, 10**12, ["site/e has batch 1000000000001 before batch 1000000000002"]),
    ],
)
def test_batches_are_numbered_from_where_a_used_store_begins(
    first: int, behind: int, reasons: list[str]
) -> None:
    """One line reports a first batch number that is too high, even if 10^12 numbers are missing
    before it.
    """
    events = [
        Event(e.t, e.hop, e.event, {**e.data, "batch": e.data["batch"] + behind})
        if e.event == "publication" and "batch" in e.data
        else e
        for e in until_batch(3)
    ]
    events[0].data["bench"]["first_batch"] = first
    assert check(events).reasons == reasons


def test_unacknowledged_message_of_a_client_is_in_flight() -> None:
    held = Event(9, "board", "waiting", {"device": "client-1", "incarnation": 1, "sequence": 2})
    events = [
        event for event in of_client(1) if event.hop == "board" or not is_of(event, 2, "client-1")
    ]
    assert wrong(check([*events, held])) == [("client-1", 2, Outcome.UNKNOWN, "board")]


def test_a_real_board_may_put_a_publication_in_other_words_and_only_in_those_that_it_sent() -> None:
    events = of_client(2)
    landed = [
        message("batch", 2, 2, text="y")
        if event.hop == "batch" and is_of(event, 2, "client-1")
        else event
        for event in events
    ]
    key = {"device": "client-1", "incarnation": 1, "sequence": 2}
    assert wrong(check(landed)) == [("client-1", 2, Outcome.ALTERED, "batch")]
    assert (
        check([*landed, Event(3, "board", "sent", {**key, "payload": b"y2".hex()})]).verdict
        is Verdict.HOLDS
    )


def test_row_without_identity_belongs_to_no_publisher() -> None:
    rows = [event for event in run_of(3) if is_of(event, 2) and event.hop in HOPS[1:]]
    bare = [
        Event(
            e.t, e.hop, e.event, {**e.data, "device": None, "incarnation": None, "sequence": None}
        )
        for e in rows
    ]
    assert wrong(check([*run_of(3), bare[0]])) == [("", 3, Outcome.PHANTOM, "spool")]
    lost = check([*(event for event in run_of(3) if event not in rows), *bare])
    assert {(outcome, hop) for _, _, outcome, hop in wrong(lost)} == {
        (Outcome.LOST, "spool"),
        (Outcome.PHANTOM, "spool"),
    }


def test_a_history_without_its_beginning_proves_nothing() -> None:
    result = check(run_of(3)[1:])
    assert (result.verdict, result.reasons) == (Verdict.UNKNOWN, ["the history has no beginning"])


@pytest.mark.parametrize(
    ("hop", "event", "harm"),
    [
        ("board", "publication", {"records": None}),
        ("board", "publication", {"records": [["uno-1:adc0", 1]]}),
        ("spool", "publication", {"payload": "zz"}),
        ("spool", "publication", {"sequence": "two"}),
        ("rig", "planned", {"kind": None, "fault": []}),
        ("rig", "run", {"bench": {"until": "the moon"}}),
        ("rig", "run", {"bench": None}),
        ("rig", "run", {"plan": None}),
    ],
)
def test_an_event_that_is_not_as_it_should_be_is_named(
    hop: str, event: str, harm: dict[str, object]
) -> None:
    events = run_of(1)
    victim = next(one for one in events if (one.hop, one.event) == (hop, event))
    victim.data.update(harm)
    with pytest.raises(
        OncewayError, match=f"an event `{event}` of hop `{hop}` breaks hil/HISTORY.md"
    ):
        check(events)
    victim.data.clear()
    with pytest.raises(OncewayError, match=r"breaks hil/HISTORY\.md"):
        check(events)


def test_at_qos_1_a_message_lands_as_often_as_its_client_has_sent_it() -> None:
    landed = [message(hop, 2, 1, position=9) for hop in HOPS[1:3]]
    again = [message(hop, 2, 1, position=10) for hop in HOPS[1:3]]
    said = {"device": "client-1", "incarnation": 1, "sequence": 2}
    resent = Event(4, "board", "resent", said)
    assert check([*of_client(1), resent, *landed]).verdict is Verdict.HOLDS
    assert wrong(check([*of_client(1), resent, *landed, *again])) == [
        ("client-1", 2, Outcome.DUPLICATE, "spool")
    ]


def test_a_client_at_qos_0_of_which_nothing_has_arrived_proves_nothing() -> None:
    of_boards = run_of(3)[1:]
    sent = [message("board", sequence, 0) for sequence in (1, 2, 3)]
    result = check([begin(readings=3, messages=3), *of_boards, *sent])
    assert result.verdict is Verdict.UNKNOWN
    assert result.reasons == ["nothing that client-1 published at QoS 0 has arrived"]


def test_each_client_of_a_table_must_produce_what_is_planned() -> None:
    events = of_client(2)
    tables = [{"messages": 3, "count": 2}, {"messages": 7, "count": 1}]
    events[0].data["bench"]["client"] = tables
    assert check(events).reasons == [
        "client-2 produced 0 of 3 planned publications",
        "client-3 produced 0 of 7 planned publications",
    ]


def test_the_moment_of_arrival_is_judged_where_it_was_seen_first() -> None:
    """The judge checks the time of arrival at the first hop that has it, the spool, although the
    table gets the same row later.
    """
    events = run_of(3)
    for event in events:
        if event.event == "publication" and event.hop != "board" and is_of(event, 2):
            event.data["received"] += 650_000
    [publication] = check(events).offenders
    assert (publication.outcome, publication.hop) == (Outcome.ALTERED, "spool")
    assert publication.why.startswith("`received` is")


def test_a_batch_that_is_gone_or_another_after_it_landed_fails() -> None:
    changed = Event(9, "batch", "changed", {"batch": "site/e/000000000001", "how": "is gone"})
    result = check([*until_batch(3), changed])
    assert result.verdict is Verdict.FAILS
    assert result.reasons == ["batch site/e/000000000001 had landed, but is gone"]


def test_unfinished_report_of_a_client_makes_no_phantom() -> None:
    """The rig is broken and ends the run before it has read all lines that the client has
    written.
    """
    events = [
        event
        for event in of_client(2)
        if event.event != "complete" and not (event.hop == "board" and is_of(event, 3, "client-1"))
    ]
    broken = Event(8, "rig", "broken", {"why": "a wire ended by itself", "last_words": []})
    read = [Event(9, hop, "complete") for hop in ("batch", READINGS)]
    result = check([*events, *read, broken])
    assert result.verdict is Verdict.UNKNOWN
    assert wrong(result) == [("client-1", 3, Outcome.UNKNOWN, "spool")]


def test_a_fault_of_the_plan_that_was_never_announced_has_not_happened() -> None:
    events = run_of(3)
    events[0].data["plan"]["faults"] = [{"id": "uplink/kill-1", "text": "kill"}]
    result = check(events)
    assert result.verdict is Verdict.UNKNOWN
    assert result.reasons == [
        "planned fault did not happen: uplink/kill-1 (kill)",
        "the history does not announce the planned fault uplink/kill-1",
    ]


@pytest.mark.parametrize(
    "more", [{0: "again", 2: 3}, {-2: "uno-2:", 0: "bad", 2: 3}, {0: "bad", 1: "V", 2: 3}]
)
def test_link_data_have_no_place_in_a_reading(more: dict[int, object]) -> None:
    events = until_batch(3)
    for event in events:
        if event.hop != "board" and is_of(event, 2):
            records = cbor2.loads(bytes.fromhex(event.data["payload"]))
            event.data["payload"] = cbor2.dumps([*records, more]).hex()
    assert wrong(check(events)) == [("uno-1", 2, Outcome.ALTERED, "spool")]


def test_a_fault_may_happen_to_a_client_that_the_bench_has() -> None:
    happened = {"fault": "client-1/kill-1", "kind": "kill"}
    planned = Event(0, "rig", "planned", happened)
    events = [*of_client(1), planned, Event(5, "client-1", "happened", happened)]
    assert check(events).reasons == []
    events.append(Event(6, "client-2", "happened", happened))
    assert check(events).reasons == ["nothing is known of an event `happened` of hop `client-2`"]
