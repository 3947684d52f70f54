"""The tables read without Spark, whatever features somebody has switched on."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.delta_reader import arrivals
from tests.ingest.batches import row
from tests.ingest.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "properties",
    [
        "'delta.enableDeletionVectors' = 'true'",
        "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2'",
    ],
)
def test_where_a_reading_is(spark: "SparkSession", tmp_path: Path, properties: str) -> None:
    lake = Lake(spark, tmp_path)
    sink = lake.open()
    lake.sql(f"alter table publications set tblproperties ({properties})")
    for number in range(3):
        sink(lake.micro_batch([row("it's", 10 * number + one) for one in range(3)]), number)
    lake.sql("delete from publications where sequence = 11")
    (found,) = arrivals(str(lake.publications), "it's", 12)
    assert (found.incarnation, found.gateway, found.batch) == (7, "site", 1)
    assert list(arrivals(str(lake.publications), "it's", 11)) == []
