"""The tables about devices have the same content, no matter when and how often they are made."""

import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from gateway.ingest.delta.tables import Table
from gateway.ingest.jobs.expire import expire
from gateway.ingest.jobs.summarise import summarise
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.readings import READINGS
from gateway.uplink.batch import Row
from tests.ingest.batches import land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY_US = 86_400_000_000
MONDAY = 1_760_313_600_000_000
"""Midnight at the beginning of a Monday, in µs since 1970."""


@pytest.fixture
def job(spark: "SparkSession", tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def at(day: float) -> int:
    return MONDAY + int(day * DAY_US)


def day_of(day: date) -> int:
    """Return the number of a day. The day of MONDAY has number 1."""
    return 1 + (day - datetime.fromtimestamp(MONDAY / 1e6, UTC).date()).days


def publications(job: Job) -> Table:
    return Table(job.spark, str(job.publications), PUBLICATIONS)


def bring_up(job: Job) -> None:
    summarise(job.spark, publications(job))


def quality(job: Job) -> dict[tuple[str, int, int], tuple[Any, ...]]:
    """Return the rows of the quality table, by device, incarnation and number of the day."""
    found = {}
    for one in job.table("_quality").collect():
        assert one["expected"] == one["arrived"] + one["missing"]
        assert one["missing"] == sum(gap["last"] - gap["first"] + 1 for gap in one["gaps"] or ())
        key = one["device"], one["incarnation"], day_of(one["day"])
        assert key not in found
        gaps = [tuple(gap) for gap in one["gaps"] or ()]
        found[key] = one["arrived"], one["late"], gaps, one["duplicates"]
    return found


def doubles(job: Job, since: int) -> int:
    """Return the number of duplicates. Check that none is counted before day `since`."""
    found = {day: row[3] for (_, _, day), row in quality(job).items() if row[3]}
    assert all(day >= since for day in found), found
    return sum(found.values())


def test_missing_late_and_double_publications_count_on_their_day(job: Job) -> None:
    today = day_of(datetime.now(UTC).date())
    land(job.landing, "site", 1, [row("a", n, received=at(0)) for n in (1, 2, 5)])
    land(job.landing, "site", 2, [row("a", n, received=at(1)) for n in (9, 9, 10)])
    job.take()
    bring_up(job)
    # the duplicate counts today, when it was left out; all rows count when they were received
    assert doubles(job, today) == 1
    assert quality(job)["a", 7, 1][:3] == (3, 3, [(3, 4)])
    assert quality(job)["a", 7, 2][:3] == (2, 2, [(6, 8)])
    # another gateway lands two missing readings and one that is in the table already
    land(job.landing, "twin", 1, [row("a", n, received=at(0.5)) for n in (5, 7, 4)])
    job.take()
    bring_up(job)
    assert quality(job)["a", 7, 1][:3] == (5, 5, [(3, 3), (6, 6)])
    assert quality(job)["a", 7, 2][:3] == (2, 2, [(8, 8)])
    assert doubles(job, today) == 2


@pytest.mark.soak
def test_deleted_rows_are_missing_and_expired_ones_are_not(job: Job) -> None:
    land(job.landing, "site", 1, [row("a", n, received=at(n)) for n in range(5)])
    job.take()
    bring_up(job)
    job.sql("DELETE FROM publications WHERE sequence = 3")
    job.lose_snapshots()
    shutil.rmtree(job.publications / "_change_data")  # `compact` deletes this folder after a week
    bring_up(job)
    assert quality(job)["a", 7, 5][:3] == (1, 1, [(3, 3)])
    assert ("a", 7, 4) not in quality(job)
    readings = Table(job.spark, f"{job.publications}_readings", READINGS)
    expire(job.spark, publications(job), readings, datetime.fromtimestamp(at(1.5) / 1e6, UTC))
    bring_up(job)
    assert {day: one[0] for (_, _, day), one in quality(job).items() if one[0]} == {
        1: 1,
        2: 1,
        3: 1,
        5: 1,
    }


def devices(job: Job) -> list[tuple[Any, ...]]:
    rows = job.table("_devices").collect()
    names = ("device", "incarnation", "site", "board", "firmware", "link", "current")
    return sorted((tuple(one[name] for name in names) for one in rows), key=str)


def registry(sequence: int, received: int, *listed: tuple[str, str, str, str]) -> Row:
    names = ("name", "board", "firmware", "port")
    payload = json.dumps(
        [{**dict(zip(names, one, strict=True)), "status": "ready"} for one in listed]
    )
    found = list(row("@site", sequence, payload=payload.encode(), received=received))
    found[4] = "onceway/devices"
    return tuple(found)


def status(device: str, sequence: int, received: int, **told: float) -> Row:
    pack: list[dict[int, object]] = [{0: name, 2: value} for name, value in told.items()]
    pack[0][-2] = f"{device}:"
    found = list(row(device, sequence, payload=cbor2.dumps(pack), received=received))
    found[4] = f"sensors/{device}/status"
    return tuple(found)


def test_a_device_has_a_row_for_each_firmware_board_and_gateway(job: Job) -> None:
    land(
        job.landing,
        "site",
        1,
        [
            row("a", 1, received=at(0)),
            registry(1, at(1), ("a", "uno", "f1", "/dev/a"), ("b", "nano", "f1", "/dev/b")),
            row("a", 2, received=at(2)),
            status("a", 3, at(3), boot=4, life=11.5),
        ],
    )
    job.take()
    bring_up(job)
    assert devices(job) == [
        ("a", 7, "site", "uno", "f1", "/dev/a", True),
        ("a", 7, "site", None, None, None, False),
        ("b", None, "site", "nano", "f1", "/dev/b", True),
    ]
    told = next(one for one in job.table("_devices").collect() if one["firmware"] and one["status"])
    assert (told["device"], told["status"]) == ("a", {"boot": 4.0, "life": 11.5})
    times = told["first_seen"], told["last_seen"], told["listed"], told["status_time"]
    assert [(time.timestamp() * 1e6 - MONDAY) / DAY_US for time in times] == [2, 3, 1, 3]
    land(job.landing, "site", 2, [registry(2, at(4), ("a", "uno", "f2", "/dev/a"))])
    job.take()
    bring_up(job)  # the batch had no rows of the device
    land(
        job.landing,
        "site",
        3,
        [
            row("a", 1, incarnation=8, received=at(5)),
            row("b", 1, received=at(5)),
            status("a", 4, at(6), boot=1),
        ],
    )
    land(job.landing, "twin", 1, [row("b", 2, received=at(4.5))])
    job.take()
    bring_up(job)
    found = {one[:5]: one[6] for one in devices(job)}
    assert found["a", 7, "site", "uno", "f2"]  # the newest status was under this incarnation
    assert not found["a", 8, "site", "uno", "f2"]
    assert found["b", 7, "site", "nano", "f1"]
    assert not found["b", 7, "twin", None, None]
    assert ("b", None, "site", "nano", "f1") not in found


def test_invalid_device_list_changes_nothing(job: Job) -> None:
    """A valid list has objects with a name. In each object, board, firmware and link are texts."""
    payloads = [
        b"\xff",
        b"{}",
        b"5",
        b"null",
        b"[1]",
        b"[null]",
        b"[[]]",
        b'{"name": "not in a list"}',
        b'[{"name": "in a list that is cut off"}, {"na',
        b'[{"name": 5}]',
        b'[{"name": null}, {"name": ""}, {"name": ["b"]}, {"name": {"name": "b"}}, {"board": "b"}]',
        b'[3, {"name": "good", "board": 5, "firmware": ["f"], "port": {"path": "/dev/a"}}]',
    ]
    strange = []
    for number, payload in enumerate(payloads):
        one = list(registry(number, at(0)))
        one[5] = payload
        strange.append(tuple(one))
    land(job.landing, "site", 1, [*strange, row("a", 1, received=at(1))])
    job.take()
    bring_up(job)
    assert devices(job) == [
        ("a", 7, "site", None, None, None, True),
        ("good", None, "site", None, None, None, True),
    ]


class Died(BaseException):
    """An exception that stands for the death of the process."""


def dies(real: Callable[..., Any], count: int, after: bool) -> Callable[..., Any]:
    """Return a function that calls `real`. At call number `count`, the function raises Died: before
    the call of `real`, or after it if `after` is true.
    """
    calls = 0

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count and not after:
            raise Died
        result = real(*arguments, **named)
        if calls == count:
            raise Died
        return result

    return dying


STEPS = [
    ("overwrite", 1, False),
    ("overwrite", 1, True),
    ("create", 2, False),  # between the two tables about devices
    ("overwrite", 2, False),
    ("overwrite", 2, True),
]


@pytest.mark.parametrize("steps", [STEPS[1:2], pytest.param(STEPS, marks=pytest.mark.soak)])
def test_a_job_that_dies_at_any_step_leaves_nothing_out_and_counts_nothing_twice(
    job: Job, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, int, bool]]
) -> None:
    """The result is compared with a model, and with tables that are made at once from all rows."""
    rng = random.Random(5)
    keys: Counter[tuple[str, int]] = Counter()
    days: dict[tuple[str, int], int] = {}
    for number, (name, count, after) in enumerate(steps, 1):
        for gateway in ("site", "twin"):
            sent = [(rng.choice("ab"), rng.randrange(40)) for _ in range(8)]
            rows = []
            for key in sent:
                days.setdefault(key, rng.randrange(7))
                rows.append(row(*key, received=at(days[key])))
            keys.update(sent)
            land(job.landing, gateway, number, rows)
        job.take()
        with monkeypatch.context() as patch:
            patch.setattr(Table, name, dies(getattr(Table, name), count, after))
            with pytest.raises(Died):
                bring_up(job)
    bring_up(job)
    compare(job, keys, days)
    suffixes = ("_quality", "_devices")
    step_by_step = [content(job, suffix) for suffix in suffixes]
    for suffix in suffixes:
        shutil.rmtree(f"{job.publications}{suffix}")
    bring_up(job)
    assert [content(job, suffix) for suffix in suffixes] == step_by_step


def content(job: Job, suffix: str) -> list[str]:
    return sorted(str(one) for one in job.table(suffix).collect())


def compare(job: Job, keys: Counter[tuple[str, int]], days: dict[tuple[str, int], int]) -> None:
    arrived: Counter[tuple[str, int]] = Counter()
    missing: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for device in "ab":
        before = None
        for sequence in sorted(sequence for one, sequence in keys if one == device):
            day = days[device, sequence] + 1
            arrived[device, day] += 1
            if before is not None:
                missing[device, day] += range(before + 1, sequence)
            before = sequence
    found = quality(job)
    assert {(device, day): one[0] for (device, _, day), one in found.items() if one[0]} == arrived
    assert {
        (device, day): [n for first, last in one[2] for n in range(first, last + 1)]
        for (device, _, day), one in found.items()
        if one[2]
    } == {key: lacks for key, lacks in missing.items() if lacks}
    assert sum(one[3] for one in found.values()) == keys.total() - len(keys)
