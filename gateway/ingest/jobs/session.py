"""The Spark session of the ingest: Delta Lake, and settings that its figures depend on.

In: settings that spark-submit was given; they win over those below. Out: a session with the landing
place as a data source.
"""

import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, cast
from zipfile import ZipFile

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import gateway
from gateway.errors import OncewayError
from gateway.ingest.jobs.source import LandingSource

OURS = {
    # The days of the tables, and what a text says as a time, go by it.
    "spark.sql.session.timeZone": "UTC",
    # What `timestamp` means in a statement: a moment, not a time of day of some zone.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings of the ingest's own session alone. One that spark-submit was given is ignored, with a
line in the log.
"""

TABLE_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""How settings begin that give properties to every new Delta table. Those of the ingest have the
properties that it gives them, and no others.
"""

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
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


LOG_SETTINGS = "log4j2.configurationFile"
"""The property of Java that says how Spark logs. `onceway ingest` sets it; where a spark-submit of
somebody's own does not, the ingest says errors alone from its session on.
"""

SAME_ZONE = ("Etc/UTC", "Z", "+00:00", "GMT")
"""Other names of UTC."""

log = logging.getLogger("onceway.ingest")

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
        | ({"spark.sql.catalogImplementation": "hive"} if named_tables else _no_warehouse())
    )
    builder = SparkSession.builder.appName("onceway-ingest")
    for key, value in settings.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    for key, value in OURS.items():
        if given.get(key, value) not in (value, *SAME_ZONE):
            log.warning("the setting %s=%s is ignored: it is %s here", key, given.get(key), value)
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not cast(Any, spark._jvm).java.lang.System.getProperty(LOG_SETTINGS):
        spark.sparkContext.setLogLevel("ERROR")
    for key, value in OURS.items():
        spark.conf.set(key, value)
    for key, value in given.getAll():
        if key.startswith(TABLE_DEFAULTS):
            log.warning("the setting %s=%s is ignored for tables of the ingest", key, value)
            spark.conf.unset(key)
    if not local:
        spark.sparkContext.addPyFile(str(_package()))
    spark.dataSource.register(LandingSource)
    return spark


def _no_warehouse() -> dict[str, str]:
    """Tables of the ingest have paths of their own, so nothing is ever put into this folder. By
    itself Spark makes one where it is started.
    """
    folder = Path(tempfile.gettempdir(), f"onceway-no-tables-{os.getuid()}")
    return {"spark.sql.warehouse.dir": folder.as_uri()}


def close_session(spark: SparkSession) -> None:
    """Java has ended, too, when this returns, if it was this process that started it."""
    with suppress(Py4JError, OSError):  # Java may have ended before
        spark.stop()
    gateway: Any = SparkContext._gateway
    java = getattr(gateway, "proc", None)
    if java is None:
        return
    with suppress(Py4JError, OSError):
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
