"""The whole job from the landing place to the tables, in the process of the tests."""

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.ingest.jobs.session import SETTINGS
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def job(spark: "SparkSession", tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def keys(*sequences: int, device: str = "dev") -> list[tuple[str, int, int]]:
    return [(device, 7, sequence) for sequence in sequences]


def test_settings_of_the_command_line_win_over_the_ingest_s_own(spark: "SparkSession") -> None:
    """The fixture `spark` sets an option as a command line of spark-submit would."""
    assert SETTINGS["spark.sql.shuffle.partitions"] != "1"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_batches_arrive_with_all_their_columns_in_micro_batches_of_few_rows(job: Job) -> None:
    begun = time.time() - 0.1  # file times are a little behind the clock
    land(job.landing, "site", 1, [row("dev", 1, payload=b"\x00\xff"), row("dev", 2, received=None)])
    for number in range(2, 6):
        land(
            job.landing,
            "site",
            number,
            [row("dev", number * 10 + position) for position in range(10)],
        )
    job.run(rows=20)
    assert job.keys() == keys(1, 2, *range(20, 60))
    assert job.versions() == 1 + 2  # the creation, then appends of batches 1 to 3, and of 4 and 5
    one, other = (each.asDict() for each in job.table().orderBy("sequence").limit(2).collect())
    assert one.pop("received").timestamp() == 1_760_000_000
    landed, ingested = one.pop("landed").timestamp(), one.pop("ingested").timestamp()
    assert begun <= landed <= ingested <= time.time()
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
        "undecodable": "neither a JSON nor a CBOR array",
    }
    assert other["received"] is None


def test_damaged_and_missing_batches_and_a_lost_checkpoint(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2, 3, 5):
        land(job.landing, "site", number, [row("dev", number)])
    # two gateways have received the same publication
    land(job.landing, "twin", 1, [row("dev", 1), row("else", 1)])
    path = job.landing / "site" / EPOCH / "000000000002.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    job.run()
    assert job.keys() == [*keys(1, 3), *keys(1, device="else")]
    land(job.landing, "site", 4, [row("dev", 4)])
    job.lose_checkpoint()
    with caplog.at_level(logging.INFO, logger="onceway.ingest"):
        job.run()
    assert "2 rows in, 2 new, 0 seen" in caplog.text  # the table has the progress of each feed
    assert job.keys() == [*keys(1, 3, 4, 5), *keys(1, device="else")]
    (found,) = job.table("_quarantine").collect()
    assert (
        found["gateway"],
        found["epoch"],
        found["batch"],
        found["reason"],
        found["released"],
    ) == (
        "site",
        EPOCH,
        2,
        "checksum does not match",
        None,
    )
    assert found["url"] == str(path)


def test_a_job_that_has_ended_is_not_called_by_spark_any_more(job: Job) -> None:
    """Spark would otherwise also call the job's listeners for later queries, and wait for them."""
    land(job.landing, "site", 1, [row("dev", 1)])
    job.run()
    streams = job.spark._jsparkSession.streams()
    assert not list(streams.listListeners())
