"""Many small files of a table become few large ones.

In: the tables. Out: the same rows in fewer files, and the files that no version of the last week
needs deleted.
"""

import logging

from pyspark.sql import SparkSession

from gateway.ingest.delta.lease import lease
from gateway.ingest.delta.tables import Table

SMALL_FILE, LARGE_FILE = 64 * 1024 * 1024, 256 * 1024 * 1024
"""Files below the first size, in bytes, are joined into files of about the second one; what is
above stays as it is.
"""

LIST_TASKS = 8
"""Tasks that list a table's files; Spark's default of 10,000 is for 10,000 folders, and these
tables are one.
"""

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
