"""The choice of a table's writer and log.

In: a table's name, and the user's choice (`WriterName`). Out: the kind of `Table`, its commit log
and its compare-and-swap.
"""

import logging
from typing import Literal

from pyspark.sql import SparkSession

from gateway.ingest.delta.commits import CommitLog
from gateway.ingest.delta.history import HistoryLog
from gateway.ingest.delta.public import PublicTable, PublicWriter
from gateway.ingest.delta.storage import open_folder
from gateway.ingest.delta.tables import SPARK_CATALOG, Place, Table, is_named
from gateway.ingest.delta.transaction import DeltaWriter, Writer, has_own_classes

WriterName = Literal["auto", "fast", "public"]
"""The way in which a table is written. fast: by Delta's own classes, with files that tasks write.
public: by Delta's public API. auto: fast if Delta's own classes are available and no other catalog
has the table.
"""

log = logging.getLogger("onceway.ingest")


def table_kind(spark: SparkSession, name: str, writer: WriterName) -> type[Table]:
    """Return the class of the table `name`. `Table` uses Delta's own classes, `PublicTable` only
    its public API.
    """
    if writer == "auto":
        why = _why_public(spark, name)
        if why:
            log.info("%s is written by Delta's public API (--writer public): %s", name, why)
        return PublicTable if why else Table
    return Table if writer == "fast" else PublicTable


def _why_public(spark: SparkSession, name: str) -> str | None:
    """Return the reason why the table needs the public API; None if Delta's own classes can be
    used.
    """
    if is_named(name):
        catalog = name.split(".")[0] if name.count(".") > 1 else spark.catalog.currentCatalog()
        if catalog != SPARK_CATALOG:
            return f"the table is in the catalog {catalog}"
    if not has_own_classes(spark):
        return f"Delta's own classes are missing or different in Spark {spark.version}"
    return None


def open_writer(spark: SparkSession, table: Table, place: Place) -> tuple[CommitLog, Writer]:
    """Return the commit log and the writer of an existing table."""
    if isinstance(table, PublicTable):
        history = HistoryLog(table)
        return history, PublicWriter(spark, table, place, history)
    commits = CommitLog(open_folder(spark, place.location, "_delta_log"))
    return commits, DeltaWriter(spark, place.location, commits)
