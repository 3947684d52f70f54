"""`compact` joins small files into few large ones, each with whole days of a device."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkConf, SparkContext

from gateway.ingest.delta.tables import Layout, Table
from gateway.ingest.jobs import compact
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.readings import READINGS
from tests.benchmarks.bench_ingest import files_read
from tests.benchmarks.history import make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DEVICES, DAYS, EACH = 1000, 10, 4
US_A_DAY = 86_400_000_000


@pytest.mark.soak
def test_one_device_and_one_day_are_in_few_files(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test takes long, because it sorts 40,000 rows of each table. In `make test`, other tests
    check the clustering columns (below), and that no row is lost or doubled (test_upkeep.py).
    """
    path, rows = tmp_path / "publications", DEVICES * EACH
    devices = [(f"device-{number:04d}", number) for number in range(DEVICES)]
    make(spark, path, DAYS * rows, devices, file_rows=rows, step_us=US_A_DAY // rows)
    monkeypatch.setattr(compact, "LARGE_FILE", 8 * 1024)
    tables = [
        Table(spark, f"{path}{suffix}", layout)
        for suffix, layout in (("", PUBLICATIONS), ("_readings", READINGS))
    ]
    compact.compact(spark, *tables)
    for table in tables:
        for number, day in ((3, 2), (DEVICES - 1, DAYS - 1)):
            read, total = files_read(table.read(), devices[number][0], day, EACH)
            assert total > DAYS
            assert read <= 0.05 * total
        of_device = table.read().where(f"device = '{devices[DEVICES // 2][0]}'").inputFiles()
        assert len(of_device) <= 0.35 * total  # before, each file has rows of each device
        assert table.read().count() == DAYS * rows


def test_a_table_without_clustering_stays_without(spark: "SparkSession", tmp_path: Path) -> None:
    """The ingest clusters only the tables that it creates. For another table, the owner may set the
    clustering by ALTER TABLE … CLUSTER BY.
    """
    name = str(tmp_path / "old")
    Table(spark, name, Layout(PUBLICATIONS.comment, PUBLICATIONS.columns)).create()
    old = Table(spark, name, PUBLICATIONS)
    old.create()
    found = spark.sql(f"describe detail delta.`{name}`").collect()[0]
    assert found["clusteringColumns"] == []
    compact.compact(spark, old)
    new = Table(spark, str(tmp_path / "new"), PUBLICATIONS)
    new.create()
    found = spark.sql(f"describe detail {new.sql}").collect()[0]
    assert found["clusteringColumns"] == ["device", "received"]


def test_settings_of_the_user_win_and_missing_tables_are_left_out(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "spark.databricks.delta.optimize.minFileSize"
    given = SparkConf(loadDefaults=False).set(key, "5")
    monkeypatch.setattr(SparkContext, "getConf", lambda _: given)
    spark.conf.set(key, "5")
    try:
        made, missing = (Table(spark, str(tmp_path / one), PUBLICATIONS) for one in "ab")
        made.create()
        compact.compact(spark, made, missing)
        assert spark.conf.get(key) == "5"
    finally:
        spark.conf.unset(key)
    assert not (tmp_path / "b").exists()
