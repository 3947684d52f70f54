"""The Spark session of the ingest: Delta Lake, and the settings with which the product's figures
were measured.

In: settings given to spark-submit, which override `SETTINGS`. Out: a session with the landing place
as a data source.
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
    # Time zone for the days of the tables, and for times in text.
    "spark.sql.session.timeZone": "UTC",
    # Meaning of `timestamp` in a statement: a point in time, not a time of day in some zone.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Meaning of quotes and words in a statement, and of an overwrite: the whole table.
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    # A file of the table that cannot be read is an error, or its keys would count as new.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # The commits contain the progress of each gateway.
    "spark.databricks.delta.commitInfo.enabled": "true",
}
"""Settings that spark-submit cannot override. Another value is ignored, and a line is logged."""

TABLE_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""Prefix of settings that give properties to every new Delta table. The ingest's tables have only
the properties that it sets."""

EXTENSIONS, CATALOG = "spark.sql.extensions", "spark.sql.catalog.spark_catalog"

SETTINGS = {
    EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # By default Delta reads its own log with 50 tasks, which makes each commit three times as slow.
    "spark.databricks.delta.snapshotPartitions": "2",
    # By default the checksum file of a commit lists all files of a small table. The first commit of
    # a new table then costs a query.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    # A micro-batch is in memory for seconds: compressing costs more time than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings for a driver without a cluster: only programs of this machine can reach its ports."""


LOG_SETTINGS = "log4j2.configurationFile"
"""Java property that names the file with the settings of Spark's log. `onceway ingest` sets the
property. If it is not set, `open_session` limits Spark's log to errors.
"""

SAME_ZONE = ("etc/utc", "z", "+00:00", "gmt")
"""Other names of UTC, in lower case."""

log = logging.getLogger("onceway.ingest")

JAVA_ENDS_S = 20
"""Longest wait, in seconds, for Java to end. Before it ends, Java deletes its files in /tmp."""


def open_session(named_tables: bool = False) -> SparkSession:
    """Return a session. named_tables: whether tables have catalog names; the session then uses a
    Hive metastore, because Spark's own catalog forgets tables when the session ends. Raises
    OncewayError for Spark Connect.
    """
    if os.environ.get("SPARK_REMOTE"):
        raise OncewayError(
            "the ingest does not run with Spark Connect: the code that finds duplicates would "
            "run on the server",
            "SPARK_REMOTE",
            "Unset SPARK_REMOTE, and start the ingest where spark-submit reaches the cluster"
            " (--master)",
        )
    SparkContext._ensure_initialized()  # SparkConf has no settings before Java runs
    conf = SparkConf()
    builder = SparkSession.builder.appName("onceway-ingest")
    for key, value in settings(dict(conf.getAll()), named_tables).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not cast(Any, spark._jvm).java.lang.System.getProperty(LOG_SETTINGS):
        spark.sparkContext.setLogLevel("ERROR")
    for key, value in OURS.items():
        spark.conf.set(key, value)
    for key, value in conf.getAll():
        if key.startswith(TABLE_DEFAULTS):
            log.warning("the setting %s=%s is ignored for tables of the ingest", key, value)
            spark.conf.unset(key)
    if not str(spark.sparkContext.master).startswith("local"):
        spark.sparkContext.addPyFile(str(_package()))
    _skip_lookup(spark)
    spark.dataSource.register(LandingSource)
    return spark


def _skip_lookup(spark: SparkSession) -> None:
    """Tell Spark that no other data source is installed. This saves a Python process that searches
    all installed packages. If this version of Spark lacks the internal method for that, the search
    still happens.
    """
    jvm = cast(Any, spark._jvm)
    with suppress(Py4JError, TypeError):
        none = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        found = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
        getattr(getattr(found, "MODULE$"), "dataSourceBuilders_$eq")(jvm.scala.Option.apply(none))


def settings(present: dict[str, str], named_tables: bool) -> dict[str, str]:
    """Return the settings to add to a session. present: settings given to spark-submit. For each
    given setting that is replaced, a line is logged.
    """
    local = present.get("spark.master", "local").startswith("local")
    defaults = (
        SETTINGS
        | (LOCAL_SETTINGS if local else {})
        | ({"spark.sql.catalogImplementation": "hive"} if named_tables else _no_warehouse())
    )
    made = {key: value for key, value in defaults.items() if key not in present} | OURS
    if not named_tables:  # Spark's own catalog opens the tables
        made[CATALOG] = SETTINGS[CATALOG]
    for key, value in made.items():
        if present.get(key, value).lower() not in (value.lower(), *SAME_ZONE):
            log.warning("the setting %s=%s is ignored: %s is used", key, present[key], value)
    others = [one.strip() for one in present.get(EXTENSIONS, "").split(",") if one.strip()]
    if SETTINGS[EXTENSIONS] not in others:
        made[EXTENSIONS] = ",".join([*others, SETTINGS[EXTENSIONS]])
    return made


def _no_warehouse() -> dict[str, str]:
    """Return settings for a warehouse folder that is never created. By default Spark creates one in
    the folder where it is started, and the ingest's tables do not need it.
    """
    folder = Path(tempfile.gettempdir(), f"onceway-no-tables-{os.getuid()}")
    return {"spark.sql.warehouse.dir": folder.as_uri()}


def close_session(spark: SparkSession) -> None:
    """Stop a session. If this process has started Java, end Java, and wait for it, JAVA_ENDS_S
    seconds at most.
    """
    with suppress(Py4JError, OSError):  # Java may have ended before
        spark.stop()
    gateway: Any = SparkContext._gateway
    java = getattr(gateway, "proc", None)
    if java is None:
        return
    with suppress(Py4JError, OSError):
        gateway.shutdown()
        java.stdin.close()  # Java ends when its input closes
    with suppress(TimeoutExpired):
        java.wait(JAVA_ENDS_S)


def _package() -> Path:
    """Return the path of a zip with the code that workers of a cluster run. The packages that this
    code imports (pyarrow, fsspec, cbor2, numpy) must be installed on the workers.
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
