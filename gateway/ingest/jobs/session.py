"""The Spark session of the ingest: Delta Lake, and settings that its figures depend on.

In: settings that spark-submit was given; they win over those below. Out: a session with the landing
place as a data source.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any
from zipfile import ZipFile

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import gateway
from gateway.errors import OncewayError
from gateway.ingest.jobs.source import LandingSource

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Delta reads its own log with 50 tasks by default, which makes each commit three times as slow.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    # A micro-batch is kept in memory for seconds: packing it costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Without a cluster nobody else has business with the driver's ports."""


JAVA_ENDS_S = 20
"""Seconds that Java may take to delete what it has in /tmp."""


def open_session(named_tables: bool = False) -> SparkSession:
    """named_tables: whether tables are given by catalog names, which Spark forgets at its end
    unless it has a metastore. Raises OncewayError where Spark Connect is asked for.
    """
    if os.environ.get("SPARK_REMOTE"):
        raise OncewayError(
            "the ingest does not run by Spark Connect: what tells doubles would run on the server",
            "SPARK_REMOTE",
            "Unset it, and start the ingest where spark-submit reaches the cluster (--master)",
        )
    SparkContext._ensure_initialized()  # before Java is there, SparkConf knows of no setting
    given = SparkConf()
    local = given.get("spark.master", "local").startswith("local")
    settings = (
        SETTINGS
        | (LOCAL_SETTINGS if local else {})
        | ({"spark.sql.catalogImplementation": "hive"} if named_tables else {})
    )
    builder = SparkSession.builder.appName("onceway-ingest")
    for key, value in settings.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not local:
        spark.sparkContext.addPyFile(str(_package()))
    spark.dataSource.register(LandingSource)
    return spark


def close_session(spark: SparkSession) -> None:
    """Java has ended, too, when this returns, if it was this process that started it."""
    spark.stop()
    gateway: Any = SparkContext._gateway
    java = getattr(gateway, "proc", None)
    if java is None:
        return
    gateway.shutdown()
    java.stdin.close()  # it waits for that
    with suppress(TimeoutExpired):
        java.wait(JAVA_ENDS_S)


def _package() -> Path:
    """The code that workers of a cluster run, as a zip. What it imports beyond (pyarrow, fsspec,
    cbor2, numpy), they have of their own.
    """
    root = Path(gateway.__file__).parent
    path = Path(tempfile.mkdtemp(prefix="onceway-")) / "onceway.zip"
    with ZipFile(path, "w") as archive:
        for folder in (
            root.glob("*.py"),
            *((root / name).rglob("*.py") for name in ("ingest", "payload", "system")),
            (root / "uplink").glob("*.py"),
        ):
            for file in sorted(folder):
                archive.write(file, file.relative_to(root.parent))
    return path
