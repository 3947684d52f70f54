"""The Spark session of the ingest: Delta Lake, and settings that its figures depend on.

In: settings that spark-submit was given; they win over those below. Out: a session with the landing place as a data source.
"""

from pyspark import SparkConf
from pyspark.sql import SparkSession

from gateway.ingest.source import LandingSource

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Delta reads its own log with 50 tasks by default, which makes each commit three times as slow.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Without a cluster nobody else has business with the driver's ports."""


def open_session() -> SparkSession:
    given = SparkConf()
    builder = SparkSession.builder.appName("onceway-ingest")
    settings = SETTINGS | (LOCAL_SETTINGS if given.get("spark.master", "local").startswith("local") else {})
    for key, value in settings.items():
        if not given.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(LandingSource)
    return spark
