"""The table, the checkpoint or the landing place is another one than the ingest left: nothing is
lost, and what was found is said.
"""

import json
import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from gateway.errors import OncewayError
from gateway.ingest.cli import app
from gateway.ingest.dedup import taken as taken_module
from gateway.ingest.jobs import stream
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FEED = f"site/{EPOCH}"


@pytest.fixture
def job(spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Job:
    caplog.set_level(logging.INFO, logger="onceway.ingest")
    return Job(spark, tmp_path)


def put(job: Job, *numbers: int) -> None:
    for number in numbers:
        land(job.landing, "site", number, [row("dev", number)])


def keys(*sequences: int) -> list[tuple[str, int, int]]:
    return [("dev", 7, sequence) for sequence in sequences]


def forget_the_log(job: Job) -> None:
    """As a new process, which has no table in its memory."""
    job.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


def test_a_table_that_was_deleted_is_filled_again(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    put(job, 1, 2)
    job.run()
    for suffix in ("", "_readings"):
        shutil.rmtree(f"{job.publications}{suffix}")
    forget_the_log(job)
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)
    assert f"it is ahead of the table: {FEED} (batch 2 there, 0 in the table)" in caplog.text


def test_a_table_from_a_backup_gets_what_came_since(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    put(job, 1)
    job.run()
    backup = job.publications.with_name("backup")
    shutil.copytree(job.publications, backup)
    put(job, 2)
    job.run()
    shutil.rmtree(job.publications)
    backup.rename(job.publications)
    forget_the_log(job)
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)
    assert f"{FEED} (batch 2 there, 1 in the table)" in caplog.text


def test_a_table_that_was_restored_gets_the_later_batches_again(job: Job) -> None:
    put(job, 1)
    job.run()
    version = job.version()
    put(job, 2)
    job.run()
    job.sql(f"RESTORE TABLE publications TO VERSION AS OF {version}")
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)


def test_a_table_that_is_restored_under_the_ingest_stops_it(job: Job) -> None:
    put(job, 1)
    query, _ = stream.start(job.spark, job.options(available_now=False, every=0.1))
    try:
        query.processAllAvailable()
        version = job.version()
        put(job, 2)
        query.processAllAvailable()
        job.sql(f"RESTORE TABLE publications TO VERSION AS OF {version}")
        put(job, 3)
        with pytest.raises(Exception, match="the table was set back"):
            query.processAllAvailable()
    finally:
        query.stop()
    job.run()
    assert job.keys() == keys(1, 2, 3)


def test_a_new_table_beside_an_old_checkpoint_gets_everything(job: Job) -> None:
    put(job, 1, 2)
    job.run()
    job.publications = job.publications.with_name("other")
    job.allow_unsigned()
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)


def test_a_lost_checkpoint_costs_no_second_reading(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    put(job, 1, 2)
    job.run()
    job.lose_checkpoint()
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)
    assert "1 rows in, 1 new" in caplog.messages[-1]


def test_a_lost_checkpoint_and_a_cleaned_landing_place_hold_nothing(job: Job) -> None:
    put(job, 1, 2)
    land(job.landing, "site", 3, [row("dev", 1)])  # a double only: nothing of it is in the table
    job.run()
    for path in (job.landing / "site" / EPOCH).iterdir():
        path.unlink()
    job.lose_checkpoint()
    put(job, 4)
    job.run()
    assert job.keys() == keys(1, 2, 4)
    assert not Path(f"{job.publications}_quarantine").exists()


def test_an_older_checkpoint_does_not_ask_for_batches_that_were_cleaned(job: Job) -> None:
    put(job, 1)
    job.run()
    older = job.checkpoint.with_name("older")
    shutil.copytree(job.checkpoint, older)
    put(job, 2)
    job.run()
    shutil.rmtree(job.checkpoint)
    older.rename(job.checkpoint)
    for path in (job.landing / "site" / EPOCH).iterdir():
        path.unlink()
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)
    assert not Path(f"{job.publications}_quarantine").exists()


def test_batches_that_the_table_has_are_cleaned_and_nobody_waits_for_them(job: Job) -> None:
    put(job, 1, 2, 3)
    job.run()
    put(job, 4)
    folder = job.landing / "site" / EPOCH
    for number in (1, 2, 4):
        os.utime(folder / f"{number:012d}.json", (1e9, 1e9))
    command = ["clean", "--landing", str(job.landing), "--table", str(job.publications)]
    done = CliRunner().invoke(app, command)
    assert done.output == f"{FEED}: 2 batches deleted, up to 2\n"
    assert {path.stem for path in folder.iterdir()} == {f"{n:012d}" for n in (3, 4)}
    assert CliRunner().invoke(app, command).output == ""
    job.lose_checkpoint()
    job.run()
    assert job.keys() == keys(1, 2, 3, 4)


def test_a_new_table_on_a_cleaned_landing_place_begins_behind_what_was_cleaned(
    job: Job,
) -> None:
    put(job, 301, 302)
    job.run()
    assert job.keys() == []
    said = ["clean", "--landing", str(job.landing), "--feed", FEED, "--until", "300"]
    assert CliRunner().invoke(app, said).exit_code == 0
    job.run()
    assert job.keys() == keys(301, 302)
    job.run()
    assert job.keys() == keys(301, 302)


@pytest.mark.parametrize("file", ["offsets/1", "commits/0"])
def test_a_checkpoint_that_a_power_cut_left_torn_is_put_aside(
    job: Job, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    put(job, 1, 2)
    job.run(rows=1)
    (job.checkpoint / file).write_bytes(b"")
    (job.checkpoint / file).with_name(f".{Path(file).name}.crc").unlink()
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)


def test_a_checkpoint_of_something_else_is_not_taken_for_ours(job: Job) -> None:
    put(job, 1)
    (job.checkpoint / "offsets").mkdir(parents=True)
    (job.checkpoint / "offsets" / "0").write_text("hello\n")
    job.run()
    assert job.keys() == keys(1)


def test_progress_outlives_a_log_that_others_fill(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log is cleaned from its old end; each start says in its new end how far the feeds are."""
    monkeypatch.setattr(taken_module, "WHOLE_EVERY", 3)
    put(job, 1)
    job.run()
    for number in range(3):
        job.sql(f"alter table publications set tblproperties ('a' = '{number}')")
    job.run()
    newest = job.publications / "_delta_log" / f"{job.version():020d}.json"
    assert json.loads(json.loads(newest.read_text().splitlines()[0])["commitInfo"]["userMetadata"])[
        "onceway"
    ]["feeds"] == {FEED: 1}
    versions = job.version()
    job.run()
    assert job.version() == versions


def test_another_table_in_the_place_of_the_old_one_is_not_written_to(job: Job) -> None:
    sink = job.open()
    sink(job.micro_batch([row("dev", 1)]), 0)
    shutil.rmtree(job.publications)
    other = Job(job.spark, job.landing.parent / "other")
    other.open()(other.micro_batch([row("dev", 2)]), 0)
    shutil.copytree(other.publications, job.publications)
    with pytest.raises(OncewayError, match="another table"):
        sink(job.micro_batch([row("dev", 3)]), 1)


def test_a_landing_place_that_was_emptied_is_not_taken_for_one_without_news(job: Job) -> None:
    put(job, 1)
    job.run()
    shutil.rmtree(job.landing / "site")
    with pytest.raises(OncewayError, match="the landing place is empty, and 1 batches of 1"):
        job.run()
