"""Tables are read without Spark, whatever features of Delta they use."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gateway.errors import OncewayError
from gateway.ingest.report.tables import rows_by_feed
from gateway.uplink.delta_reader import arrivals
from tests.ingest.batches import row
from tests.ingest.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


VECTORS = "'delta.enableDeletionVectors' = 'true'"
V2 = "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'"


def prune(log: Path) -> None:
    """Delete the commits before the newest checkpoint, as Delta does after a month."""
    checkpoint = max(int(path.name[:20]) for path in log.glob("0*.checkpoint*"))
    for commit in log.glob("0*.json"):
        if commit.stem.isdecimal() and int(commit.stem) < checkpoint:
            commit.unlink()


@pytest.mark.parametrize(
    ("properties", "form"),
    [
        (f"{VECTORS}, {V2}", "json"),
        pytest.param(f"{VECTORS}, {V2}", "parquet", marks=pytest.mark.soak),
        pytest.param(VECTORS, "parquet", marks=pytest.mark.soak),
    ],
)
def test_where_command_finds_a_reading(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    properties: str,
    form: str,
) -> None:
    """form: file format of the top level of a v2 checkpoint."""
    lake = Lake(spark, tmp_path)
    sink = lake.open()
    lake.sql(f"alter table publications set tblproperties ({properties})")
    key = "spark.databricks.delta.checkpointV2.topLevelFileFormat"
    spark.conf.set(key, form)
    try:
        for number in range(3):
            sink(lake.micro_batch([row("it's", 10 * number + one) for one in range(3)]), number)
        lake.sql("delete from publications where sequence = 11")
        lake.sql("delete from publications where sequence = 0")
    finally:
        spark.conf.unset(key)
    assert list(lake.publications.glob("*.bin"))
    if V2 in properties:
        prune(lake.publications / "_delta_log")
    table = str(lake.publications)
    (found,) = arrivals(table, "it's", 12)
    assert (found.incarnation, found.gateway, found.batch) == (7, "site", 1)
    assert list(arrivals(table, "it's", 11)) == []
    assert sum(rows_by_feed(table)[0].values()) == 7


def test_a_table_that_uses_what_the_reader_does_not_know_is_reported_as_that(
    spark: "SparkSession", tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path)
    lake.open()
    lake.sql("alter table publications set tblproperties ('delta.enableTypeWidening' = 'true')")
    with pytest.raises(OncewayError, match=r"cannot read the table: .*TypeWidening.* use Spark"):
        list(arrivals(str(lake.publications), "a", 1))


def test_a_shallow_clone_on_s3_is_reported_as_that(tmp_path: Path) -> None:
    """The paths in the log are absolute and belong to the original table's files, as after a clone
    by Spark.
    """
    write_deltalake(tmp_path, pa.table({"gateway": ["site"], "epoch": ["0"], "batch": [1]}))
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"path":"', '"path":"s3a://bucket/publications/'))
    with pytest.raises(
        OncewayError, match="the files of a shallow clone on S3: use Spark to query it"
    ):
        rows_by_feed(str(tmp_path))
