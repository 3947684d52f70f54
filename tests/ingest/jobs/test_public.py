"""The public writer accepts tables that the fast writer refuses. The ingest chooses it for tables
of other catalogs, and where Delta's own classes differ.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.ingest.delta import transaction
from gateway.ingest.delta.public import PublicTable
from gateway.ingest.delta.tables import Table
from gateway.ingest.delta.transaction import DeltaWriter, has_own_classes
from gateway.ingest.delta.writers import WriterName, table_kind
from gateway.ingest.jobs.assembly import open_sink
from gateway.ingest.jobs.summarise import summarise
from gateway.ingest.sink.microbatch import DamagedBatch
from gateway.ingest.sink.publications import PUBLICATIONS
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.lake import Job, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_writer_is_chosen_by_name_and_availability(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert table_kind(spark, "/lake/publications", "auto") is Table
    assert table_kind(spark, "lake.publications", "auto") is Table
    assert table_kind(spark, "/lake/publications", "public") is PublicTable
    assert table_kind(spark, "main.lake.publications", "fast") is Table
    assert not caplog.records
    caplog.set_level(logging.INFO, logger="onceway.ingest")
    assert table_kind(spark, "main.lake.publications", "auto") is PublicTable
    assert caplog.messages == [
        "main.lake.publications is written by Delta's public API (--writer public): the table is"
        " in the catalog main"
    ]
    monkeypatch.setattr(type(spark.catalog), "currentCatalog", lambda _: "unity")
    assert table_kind(spark, "lake.publications", "auto") is PublicTable
    assert "the table is in the catalog unity" in caplog.messages[-1]
    assert table_kind(spark, "/lake/publications", "auto") is Table


def another_delta(writer: DeltaWriter, note: dict[str, Any]) -> Any:
    """Create the operation with fewer arguments, as for a version of Delta with another
    constructor. Here, the call fails.
    """
    return writer._jvm.org.apache.spark.sql.delta.DeltaOperations.Write(note)


@pytest.mark.parametrize("how", ["another version", "a method less", "no Java"])
def test_public_writer_is_used_and_logged_without_the_classes_of_delta(
    spark: "SparkSession",
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    assert has_own_classes(spark)
    if how == "another version":
        monkeypatch.setattr(DeltaWriter, "_write", another_delta)
    elif how == "a method less":
        monkeypatch.setattr(transaction, "CALLED", {*transaction.CALLED, "commitAsOf2030"})
    else:  # a Spark Connect session has no JVM
        monkeypatch.setattr(spark, "_jvm", None)
    caplog.set_level(logging.INFO, logger="onceway.ingest")
    assert table_kind(spark, "/lake/publications", "auto") is PublicTable
    assert len(caplog.messages) == 1
    assert "Delta's own classes are missing or different in Spark" in caplog.text


@pytest.mark.soak
def test_a_table_with_a_constraint_a_lost_checkpoint_and_a_double(
    spark: "SparkSession", tmp_path: Path
) -> None:
    job = Job(spark, tmp_path, "public")
    land(job.landing, "site", 1, [row("dev", 1), row("dev", 2)])
    job.take()
    job.sql("alter table publications add constraint later check (sequence > 0)")
    land(job.landing, "site", 2, [row("dev", 2), row("dev", 3)])
    job.run()
    land(job.landing, "site", 3, [row("dev", 1), row("dev", 4)])
    job.take()  # does not use the checkpoint
    assert job.keys() == [("dev", 7, number) for number in (1, 2, 3, 4)]
    assert job.table("_readings").count() == 4
    land(job.landing, "site", 4, [row("dev", 0)])
    with pytest.raises(Exception, match="later"):
        job.take()
    assert job.keys() == [("dev", 7, number) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("writer", ["fast", pytest.param("public", marks=pytest.mark.soak)])
def test_a_table_may_be_called_by_catalog_schema_and_table(
    spark: "SparkSession", tmp_path: Path, writer: WriterName
) -> None:
    """The names of the other tables of the ingest have the same three parts."""
    spark.sql("create schema if not exists lake")
    name = f"spark_catalog.lake.{writer}"
    landing = str(tmp_path / "landing")
    sink = open_sink(spark, landing, name, writer)
    lake = Lake(spark, tmp_path, writer)
    lake.publications = Path(sink.locations["publications"].removeprefix("file:"))
    sink(lake.micro_batch([row("dev", 1), row("dev", 2)]), 0)
    sink.quarantine.add([DamagedBatch("site", EPOCH, 3, "cut off")])
    again = open_sink(spark, landing, name, writer)
    again(lake.micro_batch([row("dev", 2), row("dev", 3)]), 0)
    assert sorted(one["sequence"] for one in spark.table(name).collect()) == [1, 2, 3]
    assert spark.table(f"{name}_readings").count() == 3
    assert again.quarantine.open() == [(f"site/{EPOCH}", 3)]


def test_partitions_mapped_columns_and_defaults_are_spark_s_affair(
    spark: "SparkSession", tmp_path: Path
) -> None:
    job = Job(spark, tmp_path, "public")
    spark.sql(
        f"create table delta.`{job.publications}` (device string, incarnation bigint, sequence"
        " bigint, country string default 'north') using delta partitioned by (device)"
        " tblproperties ('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' ="
        " 'true', 'delta.feature.allowColumnDefaults' = 'supported')"
    )
    land(job.landing, "site", 1, [row("dev", 1), row("dev", 2)])
    job.take()
    land(job.landing, "site", 2, [row("dev", 2), row("twin", 3)])
    job.take()
    assert job.keys() == [("dev", 7, 1), ("dev", 7, 2), ("twin", 7, 3)]
    assert {one["country"] for one in job.table().collect()} == {"north"}
    assert job.table("_readings").count() == 3


@pytest.mark.parametrize(
    "writers",
    [
        ("fast", "public"),
        pytest.param(("public", "fast"), marks=pytest.mark.soak),
        pytest.param(("fast", "public", "fast"), marks=pytest.mark.soak),
    ],
)
def test_one_writer_goes_on_after_the_other(
    spark: "SparkSession", tmp_path: Path, writers: tuple[WriterName, ...]
) -> None:
    job = Job(spark, tmp_path)
    for number, job.writer in enumerate(writers, 1):
        land(job.landing, "site", number, [row("dev", number), row("dev", number + 1)])
        job.take()
        if number > 1:  # after some batches, and after all
            kind = table_kind(spark, str(job.publications), job.writer)
            summarise(spark, kind(spark, str(job.publications), PUBLICATIONS))
    count = len(writers) + 1
    assert job.keys() == [("dev", 7, number) for number in range(1, count + 1)]
    assert job.table("_readings").count() == count
    (seen,) = job.table("_devices").collect()
    assert (seen["device"], seen["site"], seen["current"]) == ("dev", "site", True)
    counted = job.table("_quality").agg({"arrived": "sum", "duplicates": "sum"}).collect()[0]
    assert sorted(counted.asDict().values()) == [count - 2, count]
