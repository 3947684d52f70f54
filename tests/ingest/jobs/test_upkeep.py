"""Upkeep and reports while the stream runs. Upkeep takes repaired batches, joins small files, and
deletes old rows for good.
"""

import json
import logging
import os
import re
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from gateway.errors import OncewayError
from gateway.ingest.cli import SOMEBODY_SHOULD_LOOK, app
from gateway.ingest.dedup import snapshot
from gateway.ingest.delta import lease as lease_module
from gateway.ingest.delta.tables import Table
from gateway.ingest.jobs.compact import compact
from gateway.ingest.jobs.expire import expire
from gateway.ingest.jobs.release import release
from gateway.ingest.landing.place import Landing
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.readings import READINGS
from gateway.uplink.batch import Row
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FEED = f"site/{EPOCH}"
LONG_AGO, NOW = 1_400_000_000_000_000, time.time_ns() // 1000


@pytest.fixture
def job(spark: "SparkSession", tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def keys(*sequences: int) -> list[tuple[str, int, int]]:
    return [("dev", 7, sequence) for sequence in sequences]


def readable(*sequences: int, received: int = NOW) -> list[Row]:
    return [
        row(
            "dev",
            sequence,
            payload=json.dumps([{"n": "a", "v": sequence}]).encode(),
            received=received,
        )
        for sequence in sequences
    ]


def report(job: Job) -> dict[str, dict[str, object]]:
    """Return the feeds of `onceway ingest report --json`, by name. Check its exit code."""
    result = CliRunner().invoke(
        app, ["report", "--landing", str(job.landing), "--table", str(job.publications), "--json"]
    )
    made = json.loads(result.stdout)
    ill = any(one["held"] or one["quarantine"] or one["landed"] is None for one in made["feeds"])
    assert result.exit_code == (SOMEBODY_SHOULD_LOOK if ill else 0)
    return {one["feed"]: one for one in made["feeds"]}


def test_a_batch_in_quarantine_is_released_once_it_is_repaired(
    job: Job, spark: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2, 3, 4, 6):
        land(job.landing, "site", number, readable(number, number + 1))
    damaged, missing = (
        job.landing / "site" / EPOCH / f"00000000000{number}.parquet" for number in (2, 3)
    )
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + b"?")
    kept = missing.rename(job.landing / "elsewhere")
    job.take()
    assert job.keys() == keys(1, 2, 4, 5)
    seen = report(job)[FEED]
    assert (seen["taken"], seen["landed"], seen["quarantine"], seen["rows"], seen["doubles"]) == (
        4,
        4,
        2,
        4,
        0,
    )
    assert re.match(
        rf"{FEED} waits for batch 5: it is missing, and batch 6 arrived 0\.\d h ago",
        str(seen["held"]),
    )

    damaged.write_bytes(whole)
    caplog.set_level(logging.INFO, logger="onceway.ingest")
    place = Landing(str(job.landing))
    assert release(spark, job.open(), place, job.trust()) == 1
    assert job.keys() == keys(1, 2, 3, 4, 5)
    kept.rename(missing)
    assert release(spark, job.open(), place, job.trust()) == 0
    assert release(spark, job.open(), place, job.trust()) == 0  # no batch is left to release
    assert job.keys() == keys(1, 2, 3, 4, 5)
    assert job.readings("dev") == [(*key, 0, key[2]) for key in keys(1, 2, 3, 4, 5)]
    assert all(one["released"] for one in job.table("_quarantine").collect())
    assert [record.message for record in caplog.records if "released" in record.message] == [
        f"released: {FEED} batch {number}" for number in (2, 3)
    ]
    seen = report(job)[FEED]
    assert (seen["quarantine"], seen["rows"], seen["doubles"]) == (0, 5, 3)


def test_waiting_for_repair_loses_nothing_and_needs_no_release(job: Job) -> None:
    for number in (1, 2, 3):
        land(job.landing, "site", number, readable(number))
    path = job.landing / "site" / EPOCH / "000000000002.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    job.take(damaged="wait")
    assert job.keys() == keys(1)
    assert not Path(f"{job.publications}_quarantine").exists()
    path.write_bytes(whole)
    job.take(damaged="wait")
    assert job.keys() == keys(1, 2, 3)


@pytest.mark.soak
def test_small_files_are_joined_and_the_stream_goes_on(job: Job, spark: "SparkSession") -> None:
    for number in (1, 2):
        land(job.landing, "site", number, readable(number))
    job.take(rows=1)
    tables = [
        Table(spark, f"{job.publications}{suffix}", PUBLICATIONS)
        for suffix in ("", "_readings", "_quarantine")
    ]
    assert len(job.table().inputFiles()) == 2
    compact(spark, *tables)
    assert [len(job.table(suffix).inputFiles()) for suffix in ("", "_readings")] == [1, 1]
    land(job.landing, "site", 3, readable(2, 3))
    job.take()
    assert job.keys() == keys(1, 2, 3)
    assert job.readings("dev") == [(*key, 0, key[2]) for key in keys(1, 2, 3)]


def test_old_rows_leave_and_do_not_come_back_even_without_snapshots(
    job: Job, spark: "SparkSession"
) -> None:
    publications = Table(spark, str(job.publications), PUBLICATIONS)
    readings = Table(spark, f"{job.publications}_readings", READINGS)
    land(job.landing, "site", 1, readable(1, 2, received=LONG_AGO))
    land(job.landing, "site", 2, [*readable(3), row("dev", 4, payload=b"21.5", received=None)])
    job.take()
    before = datetime.now(UTC) - timedelta(days=400)
    assert expire(spark, publications, readings, before) == 2
    assert expire(spark, publications, readings, before) == 0
    assert job.keys() == keys(3, 4)
    assert job.readings("dev") == [(*keys(3)[0], 0, 3.0)]

    land(job.landing, "site", 3, readable(5, received=LONG_AGO))
    job.take()
    # the keys of both expired rows are kept
    assert expire(spark, publications, readings, before) == 1
    for path in (job.publications / snapshot.FOLDER).glob("seen-*"):
        path.unlink()
    (kept,) = (job.publications / snapshot.FOLDER).glob("gone-*")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-10])
    with pytest.raises(OncewayError, match="the keys of deleted rows cannot be read"):
        job.take()
    kept.write_bytes(whole)
    job.take()
    assert job.keys() == keys(3, 4)
    assert job.readings("dev") == [(*keys(3)[0], 0, 3.0)]


@pytest.mark.soak
def test_old_rows_that_come_while_old_rows_are_deleted_do_not_come_back_either(
    job: Job, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lease, as on HDFS, the ingest may commit between two steps of `expire`."""
    monkeypatch.setattr(lease_module, "lock_file", lambda _: None)
    publications = Table(spark, str(job.publications), PUBLICATIONS)
    readings = Table(spark, f"{job.publications}_readings", READINGS)
    land(job.landing, "site", 1, [*readable(1, 2, received=LONG_AGO), *readable(3)])
    job.take()
    keep_gone = snapshot.keep_gone

    def then_ingest(*arguments: Any) -> None:
        keep_gone(*arguments)
        if not (job.landing / FEED / f"{2:012d}.json").exists():
            land(job.landing, "site", 2, readable(4, received=LONG_AGO))
            job.take()

    monkeypatch.setattr(snapshot, "keep_gone", then_ingest)
    assert expire(spark, publications, readings, datetime.now(UTC) - timedelta(days=400)) == 3
    assert job.keys() == keys(3)
    for path in (job.publications / snapshot.FOLDER).glob("seen-*"):
        path.unlink()
    land(job.landing, "site", 3, readable(1, 4, received=LONG_AGO))
    job.take()
    assert job.keys() == keys(3)
    assert job.readings("dev") == [(*keys(3)[0], 0, 3.0)]


def test_rows_without_a_time_of_receipt_expire_by_when_they_landed(
    job: Job, spark: "SparkSession"
) -> None:
    land(job.landing, "site", 1, [row("dev", 1, received=None)])
    os.utime(job.landing / "site" / EPOCH / "000000000001.json", (1.4e9, 1.4e9))
    land(job.landing, "site", 2, [row("dev", 2, received=None)])
    job.take()
    tables = (
        Table(spark, str(job.publications), PUBLICATIONS),
        Table(spark, f"{job.publications}_readings", READINGS),
    )
    assert expire(spark, *tables, datetime.now(UTC) - timedelta(days=400)) == 1
    assert job.keys() == keys(2)


@pytest.mark.soak
def test_changes_whose_files_are_gone_do_not_stop_the_ingest(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    """`compact` deletes change files a week after the change. If the ingest was away longer, it
    reads the whole table instead.
    """
    land(job.landing, "site", 1, readable(1, 2))
    job.take()
    job.sql("DELETE FROM publications WHERE sequence = 1")
    shutil.rmtree(job.publications / "_change_data")
    land(job.landing, "site", 2, readable(2, 3))
    job.take()
    assert job.keys() == keys(2, 3)
    assert job.readings("dev") == [(*key, 0, key[2]) for key in keys(2, 3)]
    assert "reading the keys of the whole table" in caplog.text


def test_the_report_says_what_waits_and_which_sequences_are_missing(job: Job) -> None:
    land(job.landing, "site", 1, readable(1, 2, 5))
    land(job.landing, "twin", 1, readable(5, 9))
    job.run()
    land(job.landing, "site", 2, readable(6))
    seen = report(job)
    assert (
        seen[FEED]["taken"],
        seen[FEED]["landed"],
        seen[FEED]["rows"],
        seen[FEED]["doubles"],
    ) == (1, 2, 3, 0)
    assert 0 <= float(str(seen[FEED]["lag_s"])) < 600
    twin = seen[f"twin/{EPOCH}"]
    assert (twin["taken"], twin["landed"], twin["rows"], twin["doubles"], twin["lag_s"]) == (
        1,
        1,
        1,
        1,
        None,
    )
    printed = (
        CliRunner()
        .invoke(app, ["report", "--landing", str(job.landing), "--table", str(job.publications)])
        .stdout
    )
    assert "missing: 5 sequences of dev (incarnation 7), the first 3" in printed
    took = re.search(r"last micro-batch: (\d+\.\d) s, at \d", printed)
    assert took is not None
    assert float(took[1]) > 0


def test_report_without_a_table_names_the_lack(tmp_path: Path) -> None:
    error = (
        CliRunner()
        .invoke(app, ["report", "--landing", str(tmp_path), "--table", str(tmp_path / "none")])
        .exception
    )
    assert isinstance(error, OncewayError)
    assert str(tmp_path / "none") in str(error)


@pytest.mark.parametrize("command", ["report", "clean"])
def test_without_spark_a_table_of_others_is_reported_as_that(tmp_path: Path, command: str) -> None:
    table, landing = tmp_path / "table", tmp_path / "landing"
    write_deltalake(table, pa.table({"device": ["a"], "value": [1.0]}))
    land(landing, "site", 1, readable(1))
    options = ["--landing", str(landing), "--table", str(table)]
    error = CliRunner().invoke(app, [command, *options]).exception
    assert isinstance(error, OncewayError)
    assert str(table) in str(error)
    assert re.search(r"Is it a table of the ingest\?|this is the right table", str(error))


def test_a_report_of_a_landing_place_that_is_gone_or_empty_does_not_say_landed(job: Job) -> None:
    land(job.landing, "site", 1, readable(1))
    job.take()
    shutil.rmtree(job.landing / "site")
    assert report(job)[FEED]["landed"] is None
    shutil.rmtree(job.landing)
    command = ["report", "--landing", str(job.landing), "--table", str(job.publications)]
    error = CliRunner().invoke(app, command).exception
    assert isinstance(error, OncewayError)
    assert "there is no such landing place" in str(error)
