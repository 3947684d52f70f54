"""Data that may remain when a run is over."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.store.schema import open_store
from hil.faults.ingest import CentrePowerCut
from hil.judge import remains
from hil.judge.checker import Verdict, check
from hil.observe.history import Event, History, read
from hil.observe.remains import note_centre
from tests.hil.judge.runs import DEVICES, run_of

S = 1_000_000_000
CLEAN: dict[str, Any] = {
    "files": {"gateway.db": 4096, "gateway.db-wal": 0, "uplink.key": 119},
    "tables": {"spool": 0, "batch": 9, "session": 2, "queue": 0, "message": 0, "journey": 0},
    "orphans": {"subscription": 0, "flow": 0, "queue": 0},
    "under_way": [],
    "sessions": [*DEVICES, "commander"],
}


def left(**data: Any) -> list[str]:
    return check([*run_of(3), Event(9, "gateway", "remains", {**CLEAN, **data})]).reasons


def test_each_table_of_a_store_is_accounted_for(tmp_path: Path) -> None:
    """The judge must know each table. Rows in an unknown table would make a run fail."""
    with closing(open_store(tmp_path, "site")) as store:
        rows = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    known = {*remains.EMPTY, *remains.ALONE, *remains.ACCOUNTED, *remains.FEW, *remains.GROWING}
    assert {name for (name,) in rows if not name.startswith("sqlite_")} <= known


def test_clean_store_and_landing_place_are_right() -> None:
    assert left() == []
    assert check([*run_of(3), Event(9, "landing", "remains", {"strange": []})]).reasons == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        *(
            ({"tables": {table: 2}}, f"has 2 row(s) left in its table {table}")
            for table in ("spool", "queue", "message", "retained", "will", "aside", "given_part")
        ),
        (
            {"tables": {"batch": 3, "batch_content": 4}},
            "has 4 row(s) in its table batch_content, but",
        ),
        ({"tables": {"session": 2, "flow": 3}}, "has 3 row(s) in its table flow, but needs only 2"),
        ({"tables": {"spool_check": 9}}, "has 9 row(s) in its table spool_check, but needs only 2"),
        (
            {"tables": {"origin": 1, "session": 0}},
            "has 1 row(s) in its table origin, but needs only 0",
        ),
        ({"tables": {"new_table": 1}}, "has 1 row(s) in its table new_table, but needs only 0"),
        ({"files": {"gateway.db-wal": 9_000_000}}, "has 9000000 bytes in its file gateway.db-wal"),
        ({"files": {"history.json": 9_000_000}}, "has 9000000 bytes in its file history.json"),
        ({"sessions": ["uno-1", "ghost"]}, "has a session of ghost, which is not a client of the"),
        ({"orphans": {"flow": 3}}, "has 3 row(s) of no session in its table flow"),
        (
            {"under_way": ["uno-1"]},
            "keeps packet identifiers of uno-1, but no message is under",
        ),
        *(
            ({"files": {name: 1}}, f"has left temporary files: {name}")
            for name in ("batches/.7.parquet", "generation.tmp", "boards.json~", "gateway.db.new")
        ),
        ({"files": {f"cert-{number}": 1 for number in range(41)}}, "has 41 files in its folder"),
        ({"remembered": 50_000}, "remembers the last 50001 batches, more than 50000"),
    ],
)
def test_temporary_data_must_be_gone(data: dict[str, Any], why: str) -> None:
    [said] = left(**data)
    assert said.startswith(f"gateway {why}")


def spooled(largest: int, reason: int | None = None) -> list[str]:
    """Return the verdict's reasons on a run whose spool may have 3,200 bytes. largest: the spool's
    largest size, in bytes. reason: reason code of a PUBREC that refused a publication; None: no
    such PUBREC.
    """
    first, *events = run_of(3)
    config = {"bench": {**first.data["bench"], "config": {"spool": {"max_bytes": 3200}}}}
    events.append(Event(9, "gateway", "remains", {**CLEAN, "largest": largest}))
    if reason is not None:
        refused = {"line": "uno-1", "direction": "down", "packet": "pubrec", "id": 1}
        events.append(Event(8, "wire", "refused", {**refused, "reason": reason}))
    return remains.wrong([Event(first.t, "rig", "run", {**first.data, **config}), *events])


def test_spool_keeps_to_its_size_and_uses_it() -> None:
    assert spooled(3200) == spooled(0) == spooled(1600, 0x97) == spooled(0, 0x87) == []
    assert spooled(3201) == ["gateway had 3201 bytes in its spool, but may have only 3200"]
    [said] = spooled(1599, 0x97)
    assert said == "gateway refused messages, but its spool had at most 1599 of 3200 bytes"


CENTRE = {
    "publications/_onceway/seen-N.parquet": 2,
    "publications/_delta_log/N.json": 400,
    "checkpoint/offsets/N": 101,
    ".publications.lease": 1,
}


@pytest.mark.parametrize(
    "more",
    [
        {"publications/_onceway/seen-N.parquet": 3},
        {"checkpoint/offsets/N": 111},
        {"checkpoint/.N.tmp": 3},
    ],
)
def test_files_that_collect_at_the_centre_are_reported(more: dict[str, int]) -> None:
    def left_there(files: dict[str, int]) -> list[str]:
        return check([*run_of(3), Event(9, "ingest", "remains", {"files": files})]).reasons

    assert left_there(CENTRE) == []
    [(kind, count)] = more.items()
    assert left_there({**CENTRE, **more}) == [
        f"the ingest has left {count} files of the kind {kind}"
    ]


@pytest.mark.parametrize(("cuts", "kept"), [(0, 2), (3, 3), (4, 4)])
def test_each_power_cut_of_the_centre_may_leave_a_checkpoint(cuts: int, kept: int) -> None:
    happened = {"fault": "ingest/centre-power-cut-1", "kind": CentrePowerCut.text}
    faults = [Event(8, "ingest", "happened", happened)] * cuts

    def left_there(count: int) -> list[str]:
        files = {**CENTRE, "checkpoint.aside-NTN/metadata": count}
        return remains.wrong([*run_of(3), *faults, Event(9, "ingest", "remains", {"files": files})])

    assert left_there(kept) == []
    assert left_there(kept + 1) == [
        f"the ingest has left {kept + 1} files of the kind checkpoint.aside-NTN/metadata"
    ]


def test_files_at_the_centre_are_counted_by_kind(tmp_path: Path) -> None:
    names = ["t/_onceway/seen-001.parquet", "t/_onceway/seen-002.parquet", "t/_onceway/.a1.crc"]
    names += ["t/part-00000-0a1b2c3d.snappy.parquet", "t.0a1b2c3d.tmp", "t.deadbeef0.tmp"]
    for name in names:
        (tmp_path / "table" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "table" / name).touch()
    history = History(tmp_path / "history.jsonl")
    note_centre(history, tmp_path / "table")
    [event] = read(history.path)
    assert event.data == {"files": {"t/_onceway/seen-N.parquet": 2, "t.N.tmp": 2}}


def test_stray_file_at_the_landing_place_is_reported() -> None:
    events = [*run_of(3), Event(9, "landing", "remains", {"strange": ["site/e/.7.json"]})]
    assert check(events).reasons == [
        "files at the landing place belong to no batch: site/e/.7.json"
    ]


@pytest.mark.parametrize(("of", "wrong"), [("den", 0), ("attic", 1)])
def test_card_of_a_dead_gateway_keeps_its_rows(of: str, wrong: int) -> None:
    """of: the gateway that has died. Rows may remain on its card, because `onceway spool land` does
    not change the card.
    """
    died = {"fault": "gateway/gateway-dies-1", "kind": "", "gateway": of, "died": 0, "since": 1}
    left = {**CLEAN, "tables": {"spool": 2}}
    events = [
        *run_of(3),
        Event(8, "gateway", "happened", died),
        Event(9, "gateway-den", "remains", left),
    ]
    assert len(remains.wrong(events)) == wrong


def test_remains_of_an_aborted_run_are_not_judged() -> None:
    events = [*run_of(3), Event(9, "gateway", "remains", {**CLEAN, "tables": {"queue": 2}})]
    result = check([*events, Event(9, "rig", "stalled")])
    assert result.verdict is Verdict.UNKNOWN


def usage(pid: int, counts: list[int], share: float = 0.0) -> list[Event]:
    return [
        Event(
            t * S,
            "gateway",
            "usage",
            {"pid": pid, "cpu": share * t, "memory": 1, "written": 1, "descriptors": count},
        )
        for t, count in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("counts", "leaks"),
    [
        ([10] * 40, False),
        ([10 + t for t in range(80)], True),
        ([10] * 20 + [60] + [10] * 19, False),
        ([10] * 20 + [19] * 20, False),
        ([10, 90], False),
    ],
    ids=["the same", "one more each second", "many at once", "one for each peer", "a short life"],
)
def test_files_that_stay_open_are_reported(counts: list[int], leaks: bool) -> None:
    reasons = check([*run_of(3), *usage(7, counts)]).reasons
    assert bool(reasons) is leaks
    assert all(
        "files open in the first half of its life, but never fewer than" in said for said in reasons
    )


def test_files_are_counted_for_each_process() -> None:
    """The count of open files starts again with each process of the gateway."""
    assert check([*run_of(3), *usage(7, [10] * 20), *usage(8, [40] * 20)]).reasons == []


def test_threads_that_stay_are_reported() -> None:
    grown = [
        Event(one.t, one.hop, one.event, {**one.data, "descriptors": 9, "threads": 4 + number})
        for number, one in enumerate(usage(7, [10] * 80))
    ]
    [said] = check([*run_of(3), *grown]).reasons
    assert said == (
        "gateway had at most 43 threads in the first half of its life, but never fewer than 64 in"
        " the last quarter"
    )


@pytest.mark.parametrize(
    ("program", "step", "leaks"),
    [
        ("gateway", 200_000, True),
        ("gateway-cellar", 100_000, True),
        ("gateway", 20_000, False),
        ("uplink-cellar", 300_000, True),
        ("uplink-cellar", 100_000, False),
    ],
)
def test_memory_that_is_kept_is_reported(program: str, step: int, leaks: bool) -> None:
    grown = [
        Event(one.t, program, one.event, {**one.data, "memory": 40_000_000 + step * number})
        for number, one in enumerate(usage(7, [10] * 160))
    ]
    reasons = check([*run_of(3), *grown]).reasons
    assert any("bytes of memory in the first half" in said for said in reasons) is leaks


@pytest.mark.parametrize(("size", "wrong"), [(12_000_000, 0), (12_000_001, 1)])
def test_log_of_a_store_that_is_never_truncated_is_reported(size: int, wrong: int) -> None:
    grown = [
        Event(one.t, one.hop, one.event, {**one.data, "log": size}) for one in usage(7, [10] * 4)
    ]
    said = remains.wrong([*run_of(3), *grown])
    assert said == ["gateway leaves more than 12000000 bytes in the store's log"][:wrong]


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_program_that_never_waits_is_reported(share: float) -> None:
    """Only the second half of the life counts: in the first seconds, a program may use a whole
    core.
    """
    begin = [1.0 * t for t in range(5)]
    events = usage(7, [10] * 60, share)
    for event, cpu in zip(events, begin, strict=False):
        event.data["cpu"] = cpu
    wanted = ["gateway used 50% of a core in the second half of its life"]
    assert check([*run_of(3), *events]).reasons == (wanted if share == 0.5 else [])
    assert check([*run_of(3), *events[:7]]).reasons == []


@pytest.mark.parametrize("hop", ["spool", "batch"])
@pytest.mark.parametrize("rate", [5, 50])
def test_program_may_compute_for_each_publication(hop: str, rate: int) -> None:
    """All rows are repetitions of the first one, because only their number matters here."""
    events, hops = usage(7, [10] * 60, 0.6), run_of(3)
    row = next(one for one in hops if (one.hop, one.event) == (hop, "publication"))
    rows = [Event(t * S // rate, row.hop, row.event, row.data) for t in range(60 * rate)]
    busy = "gateway used 60% of a core in the second half of its life"
    assert (busy in check([*hops, *events, *rows]).reasons) is (rate == 5)


@pytest.mark.parametrize(("times", "found"), [(3, False), (4, True)])
def test_a_log_must_be_synced(times: int, found: bool) -> None:
    events = [
        Event(one.t, one.hop, one.event, {**one.data, "stale": times}) for one in usage(7, [10] * 4)
    ]
    told = f"{events[0].hop} commits to a log that it does not sync"
    assert (told in check([*run_of(3), *events]).reasons) is found
