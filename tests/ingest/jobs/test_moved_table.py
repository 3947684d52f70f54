"""Since the last run, the table, the checkpoint or the landing place was replaced or moved. Nothing
is lost, and the log reports it.
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
from gateway.ingest.delta.tables import Table
from gateway.ingest.delta.writers import WriterName
from gateway.ingest.jobs import stream
from gateway.ingest.jobs.summarise import summarise
from gateway.ingest.sink.publications import PUBLICATIONS
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FEED = f"site/{EPOCH}"
PAYLOAD = b'[{"n":"a","v":1}]'
WRITERS = ["fast", pytest.param("public", marks=pytest.mark.soak)]


@pytest.fixture
def job(spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Job:
    caplog.set_level(logging.INFO, logger="onceway.ingest")
    return Job(spark, tmp_path)


def put(job: Job, *numbers: int) -> None:
    for number in numbers:
        land(job.landing, "site", number, [row("dev", number, payload=PAYLOAD)])


def keys(*sequences: int) -> list[tuple[str, int, int]]:
    return [("dev", 7, sequence) for sequence in sequences]


def forget_the_log(job: Job) -> None:
    """Empty Delta's cache, as in a new process."""
    job.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


@pytest.mark.soak
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
    ahead = f"it is ahead of the table: {FEED} (batch 2 in the checkpoint, 0 in the table)"
    assert ahead in caplog.text


@pytest.mark.soak
def test_a_table_from_a_backup_gets_what_came_since(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    put(job, 1)
    job.take()
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
    assert [key[2] for key in job.readings("dev")] == [1, 2, 3]
    assert f"{FEED} (batch 2 in the checkpoint, 1 in the table)" in caplog.text


@pytest.mark.soak
def test_a_table_that_was_restored_gets_the_later_batches_again(job: Job) -> None:
    """The checkpoint is newer than the restored table."""
    put(job, 1)
    job.take()
    version = job.version()
    put(job, 2)
    job.run()
    job.sql(f"RESTORE TABLE publications TO VERSION AS OF {version}")
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)


def test_a_table_that_is_restored_under_the_ingest_stops_it(job: Job) -> None:
    put(job, 1)
    query, sink = stream.start(job.spark, job.options(available_now=False, every=0.1))
    try:
        query.processAllAvailable()
        version = job.version()
        put(job, 2)
        query.processAllAvailable()
        job.sql(f"RESTORE TABLE publications TO VERSION AS OF {version}")
        put(job, 3)
        with pytest.raises(Exception, match="the table was restored to an older version"):
            query.processAllAvailable()
        assert "the table was restored to an older version" in str(sink.failure)
    finally:
        query.stop()
    job.take()
    assert job.keys() == keys(1, 2, 3)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_table_that_is_put_back_under_the_ingest_is_not_taken_for_itself(
    job: Job, writer: WriterName
) -> None:
    """The copy that is put back may have reached the same version number, and have the ingest's
    saved ranges.
    """
    job.writer = writer
    backup = job.publications.with_name("backup")
    sink = job.open()
    sink(job.micro_batch([row("dev", 1, payload=PAYLOAD)]), 0)
    shutil.copytree(job.publications, backup)
    sink(job.micro_batch([row("dev", 2, payload=PAYLOAD)]), 1)
    shutil.rmtree(job.publications)
    backup.rename(job.publications)
    sink.save()
    forget_the_log(job)
    job.sql("alter table publications set tblproperties ('a' = '1')")
    with pytest.raises(OncewayError, match="restored from a copy"):
        sink(job.micro_batch([row("dev", 3, payload=PAYLOAD)]), 2)
    again = job.open()
    again(job.micro_batch([row("dev", number, payload=PAYLOAD) for number in (2, 3)]), 0)
    assert job.keys() == keys(1, 2, 3)
    assert [key[2] for key in job.readings("dev")] == [1, 2, 3]


@pytest.mark.parametrize("writer", WRITERS)
def test_readings_that_are_put_back_under_the_ingest_are_not_taken_for_themselves(
    job: Job, writer: WriterName
) -> None:
    job.writer = writer
    readings = Path(f"{job.publications}_readings")
    sink = job.open()
    sink(job.micro_batch([row("dev", 1, payload=PAYLOAD)]), 0)
    shutil.copytree(readings, readings.with_name("backup"))
    sink(job.micro_batch([row("dev", 2, payload=PAYLOAD)]), 1)
    shutil.rmtree(readings)
    readings.with_name("backup").rename(readings)
    forget_the_log(job)
    job.spark.sql(f"alter table delta.`{readings}` set tblproperties ('a' = '1')")
    with pytest.raises(OncewayError, match="restored from a copy"):
        sink(job.micro_batch([row("dev", 3, payload=PAYLOAD)]), 2)
    job.open().catch_up()
    assert [key[2] for key in job.readings("dev")] == [1, 2, 3]


@pytest.mark.soak
def test_derived_tables_of_a_restored_table_are_rebuilt(job: Job) -> None:
    backup = job.publications.with_name("backup")
    put(job, 1)
    job.take()
    shutil.copytree(job.publications, backup)
    put(job, 2)
    job.take()
    publications = Table(job.spark, str(job.publications), PUBLICATIONS)
    summarise(job.spark, publications)
    shutil.rmtree(job.publications)
    backup.rename(job.publications)
    forget_the_log(job)
    put(job, 3)
    job.take()
    summarise(job.spark, publications)
    (day,) = job.table("_quality").collect()
    assert (day["arrived"], day["missing"]) == (3, 0)


@pytest.mark.soak
def test_a_new_table_beside_an_old_checkpoint_gets_everything(job: Job) -> None:
    put(job, 1, 2)
    job.run()
    job.publications = job.publications.with_name("other")
    job.allow_unsigned()
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)


@pytest.mark.soak
def test_a_lost_checkpoint_costs_no_second_reading(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    put(job, 1, 2)
    job.take()
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)
    assert "1 rows in, 1 new" in caplog.messages[-1]


def test_a_lost_checkpoint_and_a_cleaned_landing_place_hold_nothing(job: Job) -> None:
    put(job, 1, 2)
    # batch 3 has only a duplicate, so no row of it is in the table
    land(job.landing, "site", 3, [row("dev", 1)])
    job.take()
    for path in (job.landing / "site" / EPOCH).iterdir():
        path.unlink()
    put(job, 4)
    job.take()
    assert job.keys() == keys(1, 2, 4)
    assert not Path(f"{job.publications}_quarantine").exists()


@pytest.mark.soak
def test_an_older_checkpoint_does_not_ask_for_batches_that_were_cleaned(job: Job) -> None:
    put(job, 1)
    job.run()
    put(job, 2)
    job.take()  # does not change the checkpoint
    for path in (job.landing / "site" / EPOCH).iterdir():
        path.unlink()
    put(job, 3)
    job.run()
    assert job.keys() == keys(1, 2, 3)
    assert not Path(f"{job.publications}_quarantine").exists()


def test_batches_in_the_table_are_cleaned_and_no_longer_awaited(job: Job) -> None:
    put(job, 1, 2, 3)
    job.take()
    put(job, 4)
    folder = job.landing / "site" / EPOCH
    for number in (1, 2, 4):
        os.utime(folder / f"{number:012d}.json", (1e9, 1e9))
    command = ["clean", "--landing", str(job.landing), "--table", str(job.publications)]
    done = CliRunner().invoke(app, command)
    assert done.output == f"{FEED}: 2 batches deleted, up to 2\n"
    assert {path.stem for path in folder.iterdir()} == {f"{n:012d}" for n in (3, 4)}
    assert CliRunner().invoke(app, command).output == ""
    job.take()
    assert job.keys() == keys(1, 2, 3, 4)


def test_table_without_rows_of_a_feed_cleans_no_batch_of_it(job: Job) -> None:
    put(job, 1)
    job.open()
    command = ["clean", "--landing", str(job.landing), "--table", str(job.publications)]
    error = CliRunner().invoke(app, command).exception
    assert "the table has no batch of this landing place" in str(error)


def test_a_new_table_on_a_cleaned_landing_place_begins_behind_what_was_cleaned(
    job: Job,
) -> None:
    put(job, 301, 302)
    job.take()
    assert job.keys() == []
    said = ["clean", "--landing", str(job.landing), "--feed", FEED, "--until", "300"]
    assert CliRunner().invoke(app, said).exit_code == 0
    job.take()
    assert job.keys() == keys(301, 302)


@pytest.mark.soak
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


@pytest.mark.parametrize("offset", ['{"logOffset":3}', '{"sensors":{"0":12}}', "5", "{}\n{}"])
def test_the_checkpoint_of_another_stream_is_refused_and_stays_as_it_is(
    job: Job, offset: str
) -> None:
    put(job, 1)
    file = job.checkpoint / "offsets" / "0"
    file.parent.mkdir(parents=True)
    file.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')
    with pytest.raises(OncewayError, match="belongs to another stream") as raised:
        job.run()
    assert str(file) in str(raised.value)
    assert file.exists()
    assert not job.publications.exists()


def test_progress_outlives_a_log_that_others_fill(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta deletes the oldest commits of a log. So if the newest list of all feeds is WHOLE_EVERY
    commits old, the next start of the ingest adds a commit with a new list.
    """
    monkeypatch.setattr(taken_module, "WHOLE_EVERY", 3)
    put(job, 1)
    job.take()
    for number in range(3):
        job.sql(f"alter table publications set tblproperties ('a' = '{number}')")
    job.take()
    newest = job.publications / "_delta_log" / f"{job.version():020d}.json"
    assert json.loads(json.loads(newest.read_text().splitlines()[0])["commitInfo"]["userMetadata"])[
        "onceway"
    ]["feeds"] == {FEED: 1}
    versions = job.version()
    job.take()
    assert job.version() == versions


@pytest.mark.parametrize("writer", WRITERS)
def test_another_table_in_the_place_of_the_old_one_is_not_written_to(
    job: Job, writer: WriterName
) -> None:
    job.writer = writer
    sink = job.open()
    sink(job.micro_batch([row("dev", 1)]), 0)
    shutil.rmtree(job.publications)
    other = Job(job.spark, job.landing.parent / "other", writer)
    other.open()(other.micro_batch([row("dev", 2)]), 0)
    shutil.copytree(other.publications, job.publications)
    with pytest.raises(OncewayError, match="replaced by another table"):
        sink(job.micro_batch([row("dev", 3)]), 1)


def test_a_landing_place_that_was_emptied_is_not_taken_for_one_without_news(job: Job) -> None:
    put(job, 1)
    job.take()
    shutil.rmtree(job.landing / "site")
    with pytest.raises(
        OncewayError, match="the landing place is empty, but the table has 1 batch of 1"
    ):
        job.take()


@pytest.mark.soak
@pytest.mark.parametrize("writer", WRITERS)
def test_restored_readings_get_later_rows_again(job: Job, writer: WriterName) -> None:
    job.writer = writer
    readings = Path(f"{job.publications}_readings")
    sink = job.open()
    for number in (1, 2):
        sink(job.micro_batch([row("dev", number, payload=PAYLOAD)]), number)
    restore = f"RESTORE TABLE delta.`{readings}` TO VERSION AS OF "
    job.spark.sql(f"{restore} 1")
    sink(job.micro_batch([row("dev", 3, payload=PAYLOAD)]), 3)
    assert [key[2] for key in job.readings("dev")] == [1, 2, 3]
    job.spark.sql(f"{restore} 1")
    job.open().catch_up()
    assert [key[2] for key in job.readings("dev")] == [1, 2, 3]


@pytest.mark.parametrize("writer", WRITERS)
def test_overwritten_rows_reach_the_readings_with_the_next_start(
    job: Job, writer: WriterName
) -> None:
    """The user's statement writes old rows again. The next start finds them without a new batch."""
    job.writer = writer
    sink = job.open()
    sink(job.micro_batch([row("dev", number, payload=PAYLOAD) for number in (1, 2)]), 0)
    job.sql("insert overwrite publications select * from publications where sequence > 1")
    sink(job.micro_batch([row("dev", 3, payload=PAYLOAD)]), 1)
    assert [key[2] for key in job.readings("dev")] == [2, 3]
    job.sql("delete from publications where sequence = 2")
    job.open().catch_up()
    assert [key[2] for key in job.readings("dev")] == [3]


@pytest.mark.soak
def test_rows_deleted_before_the_next_start_leave_no_readings(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job dies after the commit of the publications and before that of the readings. Then a
    user deletes one publication and changes another. The changed one still gets its reading.
    """
    sink = job.open()
    sink(job.micro_batch([row("dev", 1, payload=PAYLOAD)]), 0)
    with monkeypatch.context() as patch:
        patch.setattr(sink._readings, "follow", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink(job.micro_batch([row("dev", n, payload=PAYLOAD) for n in (2, 3)]), 1)
    job.sql("delete from publications where sequence = 2")
    job.sql("update publications set topic = 'x' where sequence = 3")
    job.open().catch_up()
    assert [key[2] for key in job.readings("dev")] == [1, 3]


@pytest.mark.soak
@pytest.mark.parametrize("writer", WRITERS)
def test_a_clone_goes_on_by_itself_and_leaves_the_table_alone(job: Job, writer: WriterName) -> None:
    """The clone is a shallow one: it uses the files of the original table."""
    job.writer = writer
    put(job, 1, 2)
    job.take()
    table, clone = job.publications, job.publications.with_name("clone")
    job.sql(f"create table delta.`{clone}` shallow clone publications")
    put(job, 3)
    job.publications = clone
    job.allow_unsigned()
    for number in (4, 5):
        job.take()
        put(job, number)
    assert job.keys() == keys(1, 2, 3, 4)
    assert job.table("_readings").count() == 4
    job.publications = table
    assert job.keys() == keys(1, 2)


def test_the_table_under_the_ingest_is_deleted(job: Job) -> None:
    """The running job creates no files at the path of the deleted table, so that the next start can
    create the table again.
    """
    sink = job.open()
    sink(job.micro_batch([row("dev", 1)]), 0)
    shutil.rmtree(job.publications)
    with pytest.raises(OSError, match="No such file"):  # raised in a task
        job.micro_batch([row("dev", 2)])
    assert not job.publications.exists()
    job.open()(job.micro_batch([row("dev", 3)]), 0)
    assert job.keys() == keys(3)


def test_cleaning_of_existing_feeds_is_reported(job: Job) -> None:
    put(job, 3)
    for feed in (f"sit/{EPOCH}", "site/0a1b2c3", f"site/{EPOCH}/1"):
        said = ["clean", "--landing", str(job.landing), "--feed", feed, "--until", "2"]
        error = CliRunner().invoke(app, said).exception
        assert isinstance(error, OncewayError)
        assert "no such feed" in str(error)
    assert [path.name for path in job.landing.iterdir()] == ["site"]
    assert not (job.landing / "site" / "cleaned.json").exists()
