"""Settings of the ingest: the time zone of its Spark session, and the properties of its tables."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext

from gateway.ingest.delta.tables import Layout, Table
from gateway.ingest.jobs.session import (
    CATALOG,
    EXTENSIONS,
    LOG_SETTINGS,
    OURS,
    SETTINGS,
    open_session,
    settings,
)
from gateway.ingest.sink.readings import BOUNDED, READINGS
from tests.ingest.batches import row
from tests.ingest.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DEFAULTS = "spark.databricks.delta.properties.defaults."
GIVEN = {
    "spark.sql.session.timeZone": "Europe/Paris",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.sources.partitionOverwriteMode": "DYNAMIC",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.databricks.delta.commitInfo.enabled": "false",
    f"{DEFAULTS}columnMapping.mode": "name",
    f"{DEFAULTS}enableDeletionVectors": "true",
    f"{DEFAULTS}enableChangeDataFeed": "false",
    f"{DEFAULTS}enableInCommitTimestamps": "true",
    f"{DEFAULTS}autoOptimize.optimizeWrite": "true",
}
"""Settings that a user's spark-defaults.conf may have."""


@pytest.fixture
def given(spark: "SparkSession") -> Iterator[None]:
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    for key, value in GIVEN.items():
        system.setProperty(key, value)
        spark.conf.set(key, value)
    yield
    for key in GIVEN:
        system.clearProperty(key)
        if key.startswith(DEFAULTS):
            spark.conf.unset(key)
    open_session()


def test_a_given_zone_or_table_default_is_ignored_with_a_line(
    given: None, spark: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="onceway.ingest"):
        open_session()
    assert "spark.sql.session.timeZone=Europe/Paris is ignored: UTC is used" in caplog.text
    assert f"{DEFAULTS}columnMapping.mode=name is ignored" in caplog.text
    for key, value in OURS.items():
        assert f"the setting {key}={GIVEN[key]} is ignored" in caplog.text
        assert spark.conf.get(key) == value
    assert spark.conf.get(f"{DEFAULTS}columnMapping.mode", "unset") == "unset"


def test_no_process_looks_for_data_sources_in_all_packages(spark: "SparkSession") -> None:
    handles: Any = spark._jvm.java.lang.ProcessHandle.current().descendants()  # type: ignore[union-attr]
    lines = [str(one.info().commandLine().orElse("")) for one in handles.toList()]
    assert not [line for line in lines if "lookup_data_sources" in line]


DELTA = SETTINGS[EXTENSIONS]


@pytest.mark.parametrize(
    ("given", "extensions"),
    [
        ({}, DELTA),
        ({EXTENSIONS: "org.example.Sedona"}, f"org.example.Sedona,{DELTA}"),
        ({EXTENSIONS: f"{DELTA}, org.example.Sedona"}, None),
    ],
)
def test_delta_s_extension_is_there_beside_those_of_others(
    given: dict[str, str], extensions: str | None
) -> None:
    assert settings(given, False).get(EXTENSIONS) == extensions


def test_another_catalog_in_place_of_spark_s_own_holds_only_for_named_tables(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {CATALOG: "org.apache.iceberg.spark.SparkSessionCatalog"}
    assert CATALOG not in settings(given, True)
    assert not caplog.records
    assert settings(given, False)[CATALOG] == SETTINGS[CATALOG]
    assert f"the setting {CATALOG}=org.apache.iceberg" in caplog.text


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT", "Z"])
def test_utc_by_any_name_is_no_line_of_the_log(zone: str, caplog: pytest.LogCaptureFixture) -> None:
    settings({"spark.sql.session.timeZone": zone}, False)
    assert not caplog.records


@pytest.mark.soak
def test_zone_and_properties_override_the_machine_defaults(
    given: None, spark: "SparkSession", tmp_path: Path
) -> None:
    open_session()
    lake = Lake(spark, tmp_path)
    lake.open()(lake.micro_batch([row("dev", 1)]), 0)
    for suffix, feed in (("", "true"), ("_readings", None)):
        described = spark.sql(f"describe detail delta.`{lake.publications}{suffix}`").collect()[0]
        properties = described["properties"]
        assert not [key for key in properties if "columnMapping" in key or "optimizeWrite" in key]
        assert properties.get("delta.enableDeletionVectors") != "true"
        assert properties.get("delta.enableInCommitTimestamps") != "true"
        assert properties.get("delta.enableChangeDataFeed") == feed
        kinds = dict(lake.table(suffix).dtypes)
        assert kinds["received"] == "timestamp"
    assert lake.keys() == [("dev", 7, 1)]


@pytest.mark.soak
def test_impossible_times_become_text_in_a_table_of_an_older_version(
    spark: "SparkSession", tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path)
    old = Layout(
        READINGS.comment,
        tuple(one for one in READINGS.columns if one[0] != "time_stated"),
        tuple(one for one in READINGS.properties if one[0] != BOUNDED),
        READINGS.clustering,
    )
    table = Table(spark, f"{lake.publications}_readings", old)
    table.create()
    times = [
        "0057-01-02 03:04:05",
        "1999-12-31 23:59:59.5",
        "2026-03-01 00:00:00",
        "2300-01-01 00:00:00",
    ]
    for sequence, time in enumerate(times):
        spark.sql(
            f"insert into {table.sql} (device, incarnation, sequence, position, time)"
            f" values ('dev', 7, {sequence}, 0, timestamp '{time}+00:00')"
        )
    lake.open()
    assert BOUNDED in table.place().properties
    before = table.delta().history(1).select("version").collect()
    lake.open()
    # only the first start changes the table
    assert table.delta().history(1).select("version").collect() == before
    found = lake.table("_readings").orderBy("sequence").select("time", "time_stated")
    times_now = [(one["time"], one["time_stated"]) for one in found.collect()]
    assert [stated for _, stated in times_now] == [
        "0057-01-02T03:04:05Z",
        "1999-12-31T23:59:59.500000Z",
        None,
        "2300-01-01T00:00:00Z",
    ]
    assert [time is None for time, _ in times_now] == [True, True, False, True]
    assert len(lake.table("_readings").toPandas()) == len(times)


def test_session_outside_of_the_command_line_logs_errors_only(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """`onceway ingest` gives Java the settings of its log. spark-submit by hand does not."""
    levels: list[str] = []
    monkeypatch.setattr(SparkContext, "setLogLevel", lambda _, level: levels.append(level))
    open_session()
    assert levels == []
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    known = system.getProperty(LOG_SETTINGS)
    system.clearProperty(LOG_SETTINGS)
    try:
        open_session()
    finally:
        system.setProperty(LOG_SETTINGS, known)
    assert levels == ["ERROR"]


def test_workers_of_a_cluster_get_the_code_of_the_ingest(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(SparkContext, "addPyFile", lambda _, path: sent.append(path))
    open_session()
    assert sent == []
    monkeypatch.setattr(spark.sparkContext, "master", "spark://centre:7077")
    open_session()
    (path,) = sent
    assert path.endswith("/onceway.zip")
