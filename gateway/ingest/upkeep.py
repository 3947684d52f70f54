"""Upkeep of the tables: many small files become few large ones, and old rows leave.

In: the tables. Out: the same rows in fewer files; or fewer rows, while their keys are kept in the
folder `_onceway`, so that an old batch that comes again does not bring them back.
"""

import logging
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gateway.ingest import snapshot
from gateway.ingest.lease import lease
from gateway.ingest.ranges import SeenRanges
from gateway.ingest.seen import collect_ranges
from gateway.ingest.storage import open_folder
from gateway.ingest.tables import Table

SMALL_FILE, LARGE_FILE = 64 * 1024 * 1024, 256 * 1024 * 1024
"""Files below the first size, in bytes, are joined into files of about the second one; what is
above stays as it is.
"""

LIST_TASKS = 8
"""Tasks that list a table's files; Spark's default of 10,000 is for 10,000 folders, and these
tables are one.
"""

SAME_PUBLICATION = (
    "reading.device = gone.device and reading.incarnation = gone.incarnation and reading.sequence ="
    " gone.sequence"
)

log = logging.getLogger("onceway.ingest")


def compact(spark: SparkSession, publications: Table, *others: Table) -> None:
    """Join small files, and delete those that no version of the last week needs."""
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_FILE))
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(LARGE_FILE))
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", str(LIST_TASKS))
    location = publications.place().location
    for table in (publications, *others):
        if not table.exists():
            continue
        with lease(location):
            (done,) = (
                table.delta()
                .optimize()
                .executeCompaction()
                .select("metrics.numFilesAdded", "metrics.numFilesRemoved")
                .collect()
            )
            table.settle()
            table.delta().vacuum()
        log.info(
            "%s: %d files became %d", table.name, done["numFilesRemoved"], done["numFilesAdded"]
        )


def expire(spark: SparkSession, publications: Table, readings: Table, before: datetime) -> int:
    """Delete what gateways received before a moment; returns how many publications that were. Rows
    without a time stay.

    The readings go first and the keys are kept before the rows go, so whoever is interrupted begins
    anew.
    """
    place = publications.place()
    folder = open_folder(spark, place.location, snapshot.FOLDER)
    old = F.col("received") < F.lit(before)
    with lease(place.location):
        version = _version(publications)
        gone = SeenRanges()
        collect_ranges(publications.read(versionAsOf=version).where(old), gone)
        if not len(gone):
            return 0
        expired = (
            publications.read(versionAsOf=version)
            .where(old)
            .select("device", "incarnation", "sequence")
        )
        readings.delta().alias("reading").merge(
            expired.alias("gone"), SAME_PUBLICATION
        ).whenMatchedDelete().execute()
        readings.settle()
        snapshot.keep_gone(folder, gone, version, place.id)
        publications.delta().delete(old)
        publications.settle()
        deleted_from = _version(publications) - 1
        if deleted_from > version:  # where there is no lease, old rows may have come in meanwhile
            collect_ranges(publications.read(versionAsOf=deleted_from).where(old), gone)
            snapshot.keep_gone(folder, gone, deleted_from, place.id)
    return len(gone)


def _version(table: Table) -> int:
    (newest,) = table.delta().history(1).select("version").collect()
    return int(newest["version"])
