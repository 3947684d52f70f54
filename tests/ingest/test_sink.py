"""Micro-batches into the tables: each publication once, each reading once, whatever happens in between."""

import json
import logging
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import functions as F

from gateway.errors import OncewayError
from gateway.ingest import snapshot
from gateway.ingest.append import Appender
from gateway.ingest.microbatch import MicroBatch
from gateway.ingest.readings import Readings
from gateway.ingest.transaction import DeltaWriter
from gateway.uplink.batch import Row
from tests.ingest.batches import row
from tests.ingest.jobs import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def lake(spark: "SparkSession", tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def rows(*sequences: int, device: str = "dev") -> list[Row]:
    return [
        row(device, sequence, payload=json.dumps([{"n": "a", "v": sequence}, {"n": "b", "v": -sequence}]).encode())
        for sequence in sequences
    ]


def keys(*sequences: int, device: str = "dev") -> list[tuple[str, int, int]]:
    return [(device, 7, sequence) for sequence in sequences]


def whole(lake: Lake, *sequences: int) -> bool:
    """Are exactly these publications of `dev` in, and their readings?"""
    readings = sorted(
        ("dev", 7, sequence, position, value) for sequence in sequences for position, value in ((0, sequence), (1, -sequence))
    )
    return lake.keys() == keys(*sequences) and lake.readings() == readings


def test_a_key_comes_in_once_whatever_batch_or_micro_batch_brings_it(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    sink = lake.open()
    with caplog.at_level(logging.INFO, logger="onceway.ingest"):
        sink(lake.micro_batch(rows(1, 2, 3), rows(2, 3, 4)), 0)  # two batches of one micro-batch
        sink(lake.micro_batch(rows(5, 1, 5, 4)), 1)  # seen before, and twice in one batch
        sink(lake.micro_batch(rows(9, 1, 2)), 2)
        versions = lake.versions()
        sink(lake.micro_batch(rows(1, 2, 3, 4, 5, 9)), 3)  # nothing new: no commit
    assert whole(lake, 1, 2, 3, 4, 5, 9)
    assert lake.versions() == versions
    counts = [record.message.split(": ")[1].split(", version")[0].split(", nothing")[0] for record in caplog.records]
    assert counts == ["6 rows in, 4 new, 2 seen", "4 rows in, 1 new, 3 seen", "3 rows in, 1 new, 2 seen", "6 rows in, 0 new, 6 seen"]


def test_columns_have_comments_and_undecodable_payloads_their_reason(lake: Lake) -> None:
    lake.open()(lake.micro_batch([row("dev", 1, payload=b"21.5"), *rows(2)]), 0)
    assert [one["undecodable"] for one in lake.table().orderBy("sequence").collect()] == ["neither a JSON nor a CBOR array", None]
    assert lake.readings() == [("dev", 7, 2, 0, 2.0), ("dev", 7, 2, 1, -2.0)]
    for suffix in ("", "_readings"):
        assert all(field.metadata["comment"] for field in lake.table(suffix).schema)


def test_a_new_start_knows_what_is_in_with_or_without_a_snapshot(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows(1, 2)), 0)
    sink.save()
    sink(lake.micro_batch(rows(3)), 1)  # after the snapshot
    lake.open()(lake.micro_batch(rows(1, 2, 3, 4)), 2)
    (saved,) = (lake.publications / snapshot.FOLDER).glob("seen-*.parquet")
    saved.write_bytes(saved.read_bytes()[:-20])
    (saved.parent / f".{saved.name}.crc").unlink()
    lake.open()(lake.micro_batch(rows(3, 4, 5)), 3)  # the snapshot is cut off
    assert "is not used" in caplog.text
    lake.lose_snapshots()
    lake.open()(lake.micro_batch(rows(4, 5, 6)), 4)
    assert whole(lake, 1, 2, 3, 4, 5, 6)


def test_what_users_do_to_the_table(lake: Lake) -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows(1, 2)), 0)
    lake.sql("optimize publications")
    sink(lake.micro_batch(rows(2, 3)), 1)
    lake.sql("delete from publications where sequence = 1")
    lake.sql("update publications set topic = 'moved' where sequence = 2")
    sink(lake.micro_batch(rows(1, 2, 3, 4)), 2)
    assert lake.keys() == keys(2, 3, 4)  # what was deleted does not come back
    assert [one[2] for one in lake.readings()] == [1, 1, 2, 2, 3, 3, 4, 4]
    lake.sql("restore table publications to version as of 1")
    sink(lake.micro_batch(rows(2, 3)), 3)
    assert whole(lake, 1, 2, 3)  # the table is what it was then, and goes on from there


def crash_after(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, times: int = 1) -> None:
    """The `times`-th call of a method does its work, and then the process is gone as far as this test can see."""
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def called(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        result = real(*arguments, **keywords)
        calls += 1
        if calls == times:
            monkeypatch.setattr(owner, name, real)
            raise KeyboardInterrupt(name)
        return result

    monkeypatch.setattr(owner, name, called)


@pytest.mark.parametrize(
    ("owner", "name", "times"),
    [
        (Appender, "append", 1),
        (DeltaWriter, "append", 1),
        (DeltaWriter, "append", 2),
        (Readings, "follow", 1),
        (snapshot.Folder, "write", 1),
    ],
)
def test_death_between_any_two_commits(lake: Lake, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, times: int) -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows(1, 2)), 0)
    crash_after(monkeypatch, owner, name, times)
    with pytest.raises(KeyboardInterrupt, match=name):  # noqa: PT012 - one of the two, by parameter
        sink(lake.micro_batch(rows(2, 3)), 1)
        sink.save()
    again = lake.open()
    again(lake.micro_batch(rows(2, 3)), 1)
    again(lake.micro_batch(rows(4)), 2)
    assert whole(lake, 1, 2, 3, 4)


class CommitsAndFails:
    """Delta's log and transaction, whose commit lands and then loses its answer."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.landed: list[int] = []

    def startTransaction(self, *arguments: Any) -> "CommitsAndFails":
        self._inner = self._inner.startTransaction(*arguments)
        return self

    def commit(self, *arguments: Any) -> int:
        self.landed.append(self._inner.commit(*arguments))
        raise Py4JError("connection lost")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_commit_that_lands_and_fails_all_the_same_is_found_in_the_log(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = lake.open()
    failing: list[CommitsAndFails] = []
    real = DeltaWriter._delta_log
    monkeypatch.setattr(DeltaWriter, "_delta_log", lambda self: failing.append(CommitsAndFails(real(self))) or failing[-1])
    sink(lake.micro_batch(rows(1, 2)), 0)
    assert [one.landed for one in failing] == [[1], [1]]  # publications and readings
    monkeypatch.undo()
    sink(lake.micro_batch(rows(2, 3)), 1)
    assert whole(lake, 1, 2, 3)


def test_a_disk_that_is_full_stops_the_job_and_loses_nothing(lake: Lake, spark: "SparkSession") -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows(1)), 0)
    assert spark._jvm is not None
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    second = lake.micro_batch(rows(2))
    before = resource.prlimit(java, resource.RLIMIT_FSIZE)
    resource.prlimit(java, resource.RLIMIT_FSIZE, (1500, before[1]))  # a file may not grow beyond 1500 bytes, like on a disk with no room
    try:
        with pytest.raises(Exception, match="File too large"):
            sink(second, 1)
    finally:
        resource.prlimit(java, resource.RLIMIT_FSIZE, before)
    lake.open()(lake.micro_batch(rows(2)), 1)
    assert whole(lake, 1, 2)


def test_a_table_that_went_back_in_time_is_not_written_to(lake: Lake) -> None:
    sink = lake.open()
    sink(lake.micro_batch(rows(1)), 0)
    backup = lake.publications.with_name("backup")
    shutil.copytree(lake.publications, backup)
    sink(lake.micro_batch(rows(2)), 1)
    shutil.rmtree(lake.publications)
    backup.rename(lake.publications)
    with pytest.raises(OncewayError, match="is at version 1 and was at 2"):
        sink(lake.micro_batch(rows(3)), 2)
    lake.open()(lake.micro_batch(rows(1, 2, 3)), 2)
    assert lake.keys() == keys(1, 2, 3)


def test_a_batch_that_changes_while_it_is_read_fails_the_write(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark reads again what a lost executor held. Here the second reading finds the batch damaged."""
    sink = lake.open()
    sink(lake.micro_batch(rows(1)), 0)
    second = (
        lake.micro_batch(rows(2))
        .withColumn("flaw", F.when(F.rand() < 2, F.lit("checksum does not match")))
        .withColumn("header", F.lit(None))
    )
    monkeypatch.setattr(MicroBatch, "__enter__", lambda self: setattr(self, "held", [(0, "dev", 7, 2, 2)]) or self)
    with pytest.raises(Exception, match="a batch changed while it was read"):
        sink(second, 1)
    monkeypatch.undo()
    lake.open()(lake.micro_batch(rows(2)), 1)
    assert whole(lake, 1, 2)
