"""Everything that an ingest into one table consists of, put together.

In: a Spark session, the landing URL and the table's name. Out: tables that exist, and a sink that
holds their state.
"""

import logging
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.seen import Seen
from gateway.ingest.dedup.taken import Feeds, Taken
from gateway.ingest.delta.commits import CommitLog
from gateway.ingest.delta.history import HistoryLog
from gateway.ingest.delta.lease import lease
from gateway.ingest.delta.public import PublicTable, PublicWriter, has_own_classes
from gateway.ingest.delta.storage import open_folder
from gateway.ingest.delta.tables import Place, Table, beside, is_named, mend
from gateway.ingest.delta.transaction import DeltaWriter, Writer
from gateway.ingest.landing.place import Landing
from gateway.ingest.report import counters
from gateway.ingest.sink.conflicts import CONFLICTS, Conflicts
from gateway.ingest.sink.foreach_batch import Sink
from gateway.ingest.sink.microbatch import MicroBatch, TableName
from gateway.ingest.sink.publications import PUBLICATIONS, Appender
from gateway.ingest.sink.quarantine import QUARANTINE, Quarantine
from gateway.ingest.sink.readings import READINGS, Readings
from gateway.ingest.sink.row_batch import RowBatch

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


def open_sink(
    spark: SparkSession, landing: str, name: str, writer_name: WriterName = "auto"
) -> Sink:
    """The sink of the table `name`, which is made if there is none, with the seen ranges loaded."""
    kind = table_kind(spark, name, writer_name)
    publications = kind(spark, name, PUBLICATIONS)
    readings = kind(spark, beside(publications.name, "readings"), READINGS)
    quarantine = kind(spark, beside(publications.name, "quarantine"), QUARANTINE)
    found = kind(spark, beside(publications.name, "conflicts"), CONFLICTS)
    conflicts = Conflicts(spark, publications, found)
    mend(publications, readings, quarantine, found)
    publications.create()
    readings.create()
    place, readings_place = publications.place(), readings.place()
    commits, writer = _writer(spark, publications, place)
    _, readings_writer = _writer(spark, readings, readings_place)
    own = open_folder(spark, place.location, snapshot.FOLDER)
    seen = Seen(publications, place.id, writer, commits, own)
    taken = Taken(commits, lambda version: newest_batches(publications.read(versionAsOf=version)))
    with lease(place.location):
        seen.load()
        taken.load(seen.covers)
        follower = Readings(
            readings,
            readings_writer,
            publications,
            place.id,
            commits,
        )
    counted = counters.load(own, place.id) or counters.Counters(place.id)
    locations: dict[TableName, str] = {
        "publications": place.location,
        "readings": readings_place.location,
    }
    return Sink(
        locations,
        seen,
        taken,
        Appender(seen, taken, writer, publications.name, Landing(landing).cleaned, conflicts.note),
        follower,
        Quarantine(spark, quarantine, landing),
        counted,
        own,
        place.signed,
        RowBatch if kind is PublicTable else MicroBatch,
    )


def _writer(spark: SparkSession, table: Table, place: Place) -> tuple[CommitLog, Writer]:
    if isinstance(table, PublicTable):
        history = HistoryLog(table)
        return history, PublicWriter(spark, table, place, history)
    commits = CommitLog(open_folder(spark, place.location, "_delta_log"))
    return commits, DeltaWriter(spark, place.location, commits)


def newest_batches(rows: DataFrame) -> Feeds:
    """The newest batch of each feed that rows stand in the table of. Batches come in order, so all
    before it were taken too.
    """
    found = rows.groupBy("gateway", "epoch").agg(F.max("batch").alias("batch")).collect()
    return {f"{one['gateway']}/{one['epoch']}": one["batch"] for one in found}
