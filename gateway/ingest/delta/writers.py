"""Which writer a table has, and with which log.

In: a table's name, and what the user asks for. Out: the kind of `Table`, its commit log and its
compare-and-swap.
"""

import logging
from typing import Literal

from pyspark.sql import SparkSession

from gateway.ingest.delta.commits import CommitLog
from gateway.ingest.delta.history import HistoryLog
from gateway.ingest.delta.public import PublicTable, PublicWriter, has_own_classes
from gateway.ingest.delta.storage import open_folder
from gateway.ingest.delta.tables import Place, Table, is_named
from gateway.ingest.delta.transaction import DeltaWriter, Writer

WriterName = Literal["auto", "fast", "public"]
"""fast: by Delta's own classes, and files that tasks write. public: by Delta's public API. auto:
fast where Delta's own classes are to be had and the table has a name that they know.
"""

log = logging.getLogger("onceway.ingest")


def table_kind(spark: SparkSession, name: str, writer: WriterName) -> type[Table]:
    """How the table `name` is looked at and written."""
    three_parts = is_named(name) and name.count(".") > 1
    if writer == "fast" or (writer == "auto" and not three_parts and has_own_classes(spark)):
        return Table
    if writer == "auto":
        log.info("writing by Delta's public API: its own classes are not to be had for %s", name)
    return PublicTable


def open_writer(spark: SparkSession, table: Table, place: Place) -> tuple[CommitLog, Writer]:
    """For a table that exists."""
    if isinstance(table, PublicTable):
        history = HistoryLog(table)
        return history, PublicWriter(spark, table, place, history)
    commits = CommitLog(open_folder(spark, place.location, "_delta_log"))
    return commits, DeltaWriter(spark, place.location, commits)
