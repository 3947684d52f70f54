"""Compaction: many small files of a table become few large ones, with the rows of a device
together.

In: the tables. Out: the same rows in fewer files, clustered if the table has clustering columns;
files that no version of the last week needs are deleted.
"""

import logging

from pyspark.sql import SparkSession

from gateway.ingest.delta.lease import lease
from gateway.ingest.delta.tables import Table

SMALL_FILE, LARGE_FILE = 32 * 1024 * 1024, 64 * 1024 * 1024
"""Sizes in bytes. In a table without clustering, files below SMALL_FILE are joined into files of
about LARGE_FILE. A query for one device and one day reads two or three files, so larger files would
slow it down.
"""

FULL = 8
"""Number of large files of a clustered table that form one group, sorted together. A full group
stays as it is, and the rows of later days form other groups. Otherwise each day would rewrite the
whole table.
"""

_OPTIMIZE = "spark.databricks.delta.optimize"
_FULL = f"{_OPTIMIZE}.clustering.mergeStrategy.minCubeSize.threshold"

LIST_TASKS = 8
"""Number of tasks that list a table's files. Spark's default of 10,000 is meant for 10,000 folders;
a table is one folder.
"""

log = logging.getLogger("onceway.ingest")


def compact(spark: SparkSession, publications: Table, *others: Table) -> None:
    """Join small files of the tables, and delete files that no version of the last week needs."""
    settings = {
        f"{_OPTIMIZE}.minFileSize": SMALL_FILE,
        f"{_OPTIMIZE}.maxFileSize": LARGE_FILE,
        _FULL: FULL * LARGE_FILE,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": LIST_TASKS,
    }
    conf = spark.sparkContext.getConf()
    for key, value in settings.items():
        if not conf.contains(key):
            spark.conf.set(key, str(value))
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
            "%s: joined small files: %d before, %d now",
            table.name,
            done["numFilesRemoved"],
            done["numFilesAdded"],
        )
