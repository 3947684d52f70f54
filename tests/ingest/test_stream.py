"""The whole job, in this process: landing place → stream → table."""

import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ingest.batches import EPOCH, land, row
from tests.ingest.jobs import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def job(spark: "SparkSession", tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def keys(*sequences: int, device: str = "dev") -> list[tuple[str, int, int]]:
    return [(device, 7, sequence) for sequence in sequences]


def test_publications_arrive_with_all_their_columns(job: Job) -> None:
    land(job.landing, "site", 1, [row("dev", 1, payload=b"\x00\xff"), row("dev", 2, received=None)])
    job.run()
    one, other = (each.asDict() for each in job.table().orderBy("sequence").collect())
    assert one.pop("received").timestamp() == 1_760_000_000
    assert one == {
        "device": "dev",
        "incarnation": 7,
        "sequence": 1,
        "client": None,
        "topic": "sensors/dev",
        "payload": bytearray(b"\x00\xff"),
        "boot": 3,
        "monotonic": 1000,
        "gateway": "site",
        "epoch": EPOCH,
        "batch": 1,
        "spool_id": 1,
    }
    assert other["received"] is None


def test_the_same_batch_twice_and_later_batches_with_the_same_keys(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    land(job.landing, "site", 1, [row("dev", number) for number in (1, 2, 3)])
    land(job.landing, "twin", 1, [row("dev", number) for number in (2, 3, 4)])  # the same device, heard by another gateway
    job.run()
    assert job.keys() == keys(1, 2, 3, 4)
    land(job.landing, "site", 2, [row("dev", number) for number in (5, 1, 5, 4)])  # a key twice in one batch
    land(job.landing, "site", 3, [row("dev", 5), row("dev", 6), row("dev", 1, incarnation=8)])
    with caplog.at_level(logging.INFO, logger="onceway.ingest"):
        job.run()
    assert job.keys() == [*keys(1, 2, 3, 4, 5, 6), ("dev", 8, 1)]
    assert "7 rows in, 3 new, 4 seen" in caplog.text


def test_a_pass_without_anything_new_makes_no_commit(job: Job) -> None:
    land(job.landing, "site", 1, [row("dev", 1)])
    job.run()
    versions = job.versions()
    job.run()
    job.lose_checkpoint()
    job.run()
    assert (job.keys(), job.versions()) == (keys(1), versions)


def test_a_lost_checkpoint_and_a_lost_snapshot_double_nothing_and_hide_nothing(job: Job) -> None:
    land(job.landing, "site", 1, [row("dev", 1), row("dev", 2)])
    job.run()
    job.lose_checkpoint()
    shutil.rmtree(job.publications / "_onceway")
    land(job.landing, "site", 2, [row("dev", 2), row("dev", 3)])
    job.run()
    assert job.keys() == keys(1, 2, 3)


def test_a_half_written_snapshot_is_not_used(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    land(job.landing, "site", 1, [row("dev", 1), row("dev", 2)])
    job.run()
    (snapshot,) = (job.publications / "_onceway").glob("seen-*")
    snapshot.write_bytes(snapshot.read_bytes()[:-20])
    (job.publications / "_onceway" / f".{snapshot.name}.crc").unlink()
    job.lose_checkpoint()
    job.run()
    assert "is not used" in caplog.text
    assert job.keys() == keys(1, 2)


def test_a_damaged_batch_is_quarantined_and_the_rest_goes_on(job: Job) -> None:
    land(job.landing, "site", 1, [row("dev", 1)])
    land(job.landing, "site", 2, [row("dev", 2)])
    land(job.landing, "site", 3, [row("dev", 3)])
    land(job.landing, "other", 1, [row("else", 1)])
    path = job.landing / "site" / EPOCH / "000000000002.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    job.run()
    assert job.keys() == [*keys(1, 3), *keys(1, device="else")]
    job.lose_checkpoint()
    job.run()  # found damaged again: still one row
    (found,) = job.table("_quarantine").collect()
    assert (found["gateway"], found["epoch"], found["batch"], found["reason"], found["released"]) == (
        "site",
        EPOCH,
        2,
        "checksum does not match",
        None,
    )
    assert found["url"] == str(path)


def test_a_missing_number_holds_its_gateway_until_it_comes(job: Job) -> None:
    for number in (1, 3):
        land(job.landing, "site", number, [row("dev", number)])
    land(job.landing, "other", 1, [row("else", 1)])
    job.run()
    assert job.keys() == [*keys(1), *keys(1, device="else")]
    land(job.landing, "site", 2, [row("dev", 2)])
    job.run()
    assert job.keys() == [*keys(1, 2, 3), *keys(1, device="else")]


def test_micro_batches_of_few_rows_take_everything(job: Job) -> None:
    for number in range(1, 6):
        land(job.landing, "site", number, [row("dev", number * 10 + position) for position in range(10)])
    job.run(rows=20)
    assert job.keys() == keys(*range(10, 60))
    assert job.versions() == 1 + 3  # made, then three appends of at most two batches


def test_deleted_rows_do_not_come_back(job: Job) -> None:
    land(job.landing, "site", 1, [row("dev", 1), row("dev", 2)])
    job.run()
    job.spark.sql(f"delete from delta.`{job.publications}` where sequence = 1")
    job.lose_checkpoint()
    job.run()
    assert job.keys() == keys(2)


def test_rows_come_back_after_a_restore_to_before_they_came(job: Job) -> None:
    land(job.landing, "site", 1, [row("dev", 1)])
    job.run()
    land(job.landing, "site", 2, [row("dev", 2)])
    job.run()
    job.spark.sql(f"restore table delta.`{job.publications}` to version as of 1")
    job.lose_checkpoint()
    job.run()
    assert job.keys() == keys(1, 2)
