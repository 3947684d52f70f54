"""A power cut at the centre: the order in which files are synced, and the start after a commit was
cut off.
"""

import json
import logging
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gateway.errors import OncewayError
from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.ranges import SeenRanges
from gateway.ingest.delta import durability
from gateway.ingest.delta.storage import LocalFolder
from gateway.ingest.delta.tables import Table
from gateway.ingest.delta.transaction import DeltaWriter
from gateway.ingest.jobs.compact import compact
from gateway.ingest.sink.publications import PUBLICATIONS
from tests.durability.disk import SmallDisk
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.files import ranges_of
from tests.ingest.lake import Job, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LINE = -1
"""Value of `left` by which only the first line of the commit's file is left. Other values are
numbers of bytes.
"""

PAYLOAD = b'[{"n":"a","v":1}]'


class Disk:
    """A recorder of all calls of fsync. synced: synced paths, in order. marks: number of synced
    paths at the time of each commit, by table.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[Path] = []
        self.marks: dict[str, int] = {}
        fsync = os.fsync

        def follow(descriptor: int) -> None:
            fsync(descriptor)
            self.synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

        monkeypatch.setattr(os, "fsync", follow)

    def before(self, what: str) -> set[Path]:
        return set(self.synced[: self.marks[what]])


@pytest.fixture
def lake(spark: "SparkSession", tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def newest(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


def files_of(commit: Path) -> set[Path]:
    """Return the data files that a commit adds."""
    actions = map(json.loads, commit.read_text().splitlines())
    return {commit.parents[1] / action["add"]["path"] for action in actions if "add" in action}


def test_files_are_on_the_disk_before_the_commit_and_the_commit_before_the_micro_batch_ends(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    sink = lake.open()
    for table in (lake.publications, Path(f"{lake.publications}_readings")):
        assert {newest(table), newest(table).parent, table, table.parent} <= set(disk.synced)
    write = DeltaWriter._write  # writes the commit, after the data files

    def mark(writer: DeltaWriter, note: dict[str, Any]) -> Any:
        disk.marks["publications" if "micro_batch" in note else "readings"] = len(disk.synced)
        return write(writer, note)

    monkeypatch.setattr(DeltaWriter, "_write", mark)
    for number, batch in enumerate(
        ([row("a", 1, payload=PAYLOAD)], [row("a", n, payload=PAYLOAD) for n in (1, 2)])
    ):
        # one row of the second batch is a duplicate, so Spark writes the batch's rows again
        sink(lake.micro_batch(batch), number)
        for name in ("publications", "readings"):
            table = (
                lake.publications
                if name == "publications"
                else Path(f"{lake.publications}_readings")
            )
            commit = newest(table)
            assert files_of(commit)
            assert files_of(commit) | {table} <= disk.before(name)
            assert {commit, commit.parent, commit.with_name(f".{commit.name}.crc")} <= set(
                disk.synced[disk.marks[name] :]
            )
            assert commit not in disk.before(name)
        assert newest(lake.publications) in disk.before("readings")
        disk.synced.clear()


@pytest.mark.parametrize(
    "left", [300, *(pytest.param(one, marks=pytest.mark.soak) for one in (0, LINE))]
)
def test_a_commit_that_was_cut_off_is_taken_back_and_its_micro_batch_comes_again(
    spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture, left: int
) -> None:
    job = Job(spark, tmp_path)
    for number in (1, 2):
        land(job.landing, "site", number, [row("dev", number, payload=PAYLOAD)])
        job.take()
    lost = newest(job.publications)
    readings = newest(Path(f"{job.publications}_readings"))
    # the commit of the readings was not written: it comes after the lost one
    for commit in (lost, readings):
        commit.with_name(f".{commit.name}.crc").unlink()
    readings.unlink()
    text = lost.read_bytes()
    lost.write_bytes(text[: text.index(b"\n") + 1 if left == LINE else left])
    for path in (job.publications / snapshot.FOLDER).glob(f"seen-*{int(lost.stem)}.parquet"):
        path.unlink()  # snapshots are written after both commits
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr] - as in a new process
    with caplog.at_level(logging.WARNING, logger="onceway.ingest"):
        job.take()
    assert "was cut off, for example by a power cut" in caplog.text
    assert job.keys() == [("dev", 7, 1), ("dev", 7, 2)]
    assert job.readings("dev") == [("dev", 7, 1, 0, 1.0), ("dev", 7, 2, 0, 1.0)]
    job.take()
    assert job.versions() == 3  # the commit that was cut off is gone


@pytest.mark.parametrize("left", [b"PAR1", pytest.param(b"", marks=pytest.mark.soak)])
def test_a_compaction_whose_file_the_power_cut_off_is_taken_back(
    spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture, left: bytes
) -> None:
    job = Job(spark, tmp_path)
    for number in (1, 2):
        land(job.landing, "site", number, [row("dev", number, payload=PAYLOAD)])
    job.take(rows=1)
    compact(spark, Table(spark, str(job.publications), PUBLICATIONS))
    compacted = max(
        commit
        for commit in (job.publications / "_delta_log").glob("*.json")
        if "OPTIMIZE" in commit.read_text()
    )
    for commit in (job.publications / "_delta_log").glob("*.json"):
        if commit > compacted:
            commit.unlink()  # a vacuum would need synced files
    (joined,) = files_of(compacted)
    joined.write_bytes(left.ljust(joined.stat().st_size, b"\0") if left else left)
    joined.with_name(f".{joined.name}.crc").unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr] - as in a new process
    land(job.landing, "site", 3, [row("dev", 2), row("dev", 3)])
    with caplog.at_level(logging.WARNING, logger="onceway.ingest"):
        job.take()
    assert f"{compacted} was cut off" in caplog.text
    assert job.keys() == [("dev", 7, 1), ("dev", 7, 2), ("dev", 7, 3)]


def log_of(table: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (table / "_delta_log").glob("*.json")}


def torn_log(table: Path, **commits: bytes) -> Path:
    log = table / "_delta_log"
    log.mkdir(parents=True)
    for name, text in commits.items():
        (log / f"{int(name[1:]):020d}.json").write_bytes(text)
    return log


def test_the_first_version_of_a_table_is_never_taken_back(tmp_path: Path) -> None:
    torn_log(tmp_path, v0=b'{"commitInfo":{"operation":"CREATE TABLE"}}')
    before = log_of(tmp_path)
    with pytest.raises(OncewayError, match="the commit that made the table was cut off"):
        durability.take_back_torn(str(tmp_path))
    assert log_of(tmp_path) == before


@pytest.mark.parametrize("name", ["checkpoint.parquet", "checkpoint.0c61.json"])
def test_a_commit_of_which_a_checkpoint_was_made_is_never_taken_back(
    tmp_path: Path, name: str
) -> None:
    log = torn_log(tmp_path, v4=b"")
    (log / f"{4:020d}.{name}").write_bytes(b"")
    before = log_of(tmp_path)
    durability.take_back_torn(str(tmp_path))
    assert log_of(tmp_path) == before


def test_commit_of_another_program_is_left_alone(tmp_path: Path) -> None:
    add = b'{"add":{"path":"part-1.parquet","size":9,"dataChange":true}}'
    torn_log(tmp_path, v4=b'{"commitInfo":{"operation":"WRITE"}}\n' + add)
    before = log_of(tmp_path)
    durability.take_back_torn(str(tmp_path))
    assert log_of(tmp_path) == before


def test_a_batch_in_quarantine_is_on_the_disk(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, disk = Job(spark, tmp_path), Disk(monkeypatch)
    land(job.landing, "site", 1, [row("dev", 1)])
    (job.landing / "site" / EPOCH / "000000000001.parquet").write_bytes(b"")
    job.take()
    commit = newest(Path(f"{job.publications}_quarantine"))
    assert files_of(commit)
    assert files_of(commit) | {commit} <= set(disk.synced)


def test_keys_of_deleted_rows_are_on_the_disk_and_whole_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, disk, ranges = LocalFolder(tmp_path / snapshot.FOLDER), Disk(monkeypatch), SeenRanges()
    ranges.add(ranges_of([("dev", 7)], np.array([1]), np.array([4])))
    snapshot.keep_gone(folder, ranges, 3, "id")
    hidden = tmp_path / snapshot.FOLDER / f".gone-{3:020d}.parquet.new"
    assert disk.synced == [tmp_path, hidden, tmp_path / snapshot.FOLDER]
    with monkeypatch.context() as patch:
        patch.setattr(
            os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(5, "Input/output error"))
        )
        with pytest.raises(OSError, match="Input/output"):
            snapshot.keep_gone(folder, ranges, 4, "id")
    assert list(snapshot.deleted_keys(folder, "id").as_ranges()) == [(("dev", 7), 1, 4)]


def test_elsewhere_nothing_is_done() -> None:
    for act in (
        lambda url: durability.settle(url, 5),
        durability.settle_newest,
        durability.take_back_torn,
    ):
        act("s3a://lake/publications")


@pytest.mark.soak
def test_a_table_s_disk_that_is_full_at_any_step_stops_the_job_and_loses_nothing(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is a full tmpfs. The test needs root."""
    if os.geteuid():
        pytest.skip("mounts a tmpfs")
    with closing(SmallDisk(tmp_path, 8_000_000)) as disk:
        lake = Lake(spark, disk.mount)
        lake.open()(lake.micro_batch([row("a", 1, payload=PAYLOAD)]), 0)
        disk.fill()
        with pytest.raises(OSError, match="No space left"):  # raised in a task
            lake.micro_batch([row("a", 2, payload=PAYLOAD)])
        disk.free()
        micro_batch, sink = lake.micro_batch([row("a", 2, payload=PAYLOAD)]), lake.open()
        disk.fill()
        with pytest.raises(Exception, match="No space left"):  # raised in the driver's commit
            sink(micro_batch, 1)
        disk.free()
        assert lake.keys() == [("a", 7, 1)]
        lake.open()(
            lake.micro_batch([row("a", 1, payload=PAYLOAD), row("a", 2, payload=PAYLOAD)]), 1
        )
        assert lake.keys() == [("a", 7, 1), ("a", 7, 2)]
        assert lake.readings("a") == [("a", 7, 1, 0, 1.0), ("a", 7, 2, 0, 1.0)]
