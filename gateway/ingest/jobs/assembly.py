"""Assembly of the ingest's parts for one table.

In: a Spark session, the landing URL and the table's name. Out: the tables, created if they are
missing, and a sink that writes to them.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.seen import Seen
from gateway.ingest.dedup.taken import Feeds, Taken
from gateway.ingest.delta.lease import lease
from gateway.ingest.delta.public import PublicTable
from gateway.ingest.delta.storage import open_folder
from gateway.ingest.delta.tables import mend, sibling_table
from gateway.ingest.delta.writers import WriterName, open_writer, table_kind
from gateway.ingest.landing.place import Landing
from gateway.ingest.report import counters
from gateway.ingest.sink.conflicts import CONFLICTS, Conflicts
from gateway.ingest.sink.foreach_batch import Sink
from gateway.ingest.sink.microbatch import MicroBatch, TableName
from gateway.ingest.sink.publications import PUBLICATIONS, Appender
from gateway.ingest.sink.quarantine import QUARANTINE, Quarantine
from gateway.ingest.sink.readings import BOUNDED, READINGS, Readings, bound_times
from gateway.ingest.sink.row_batch import RowBatch


def open_sink(
    spark: SparkSession, landing: str, name: str, writer_name: WriterName = "auto"
) -> Sink:
    """Return the sink of the table `name`, with the seen ranges loaded. The tables are created if
    they are missing.
    """
    kind = table_kind(spark, name, writer_name)
    publications = kind(spark, name, PUBLICATIONS)
    readings = kind(spark, sibling_table(publications.name, "readings"), READINGS)
    quarantine = kind(spark, sibling_table(publications.name, "quarantine"), QUARANTINE)
    found = kind(spark, sibling_table(publications.name, "conflicts"), CONFLICTS)
    conflicts = Conflicts(spark, publications, found)
    mend(publications, readings, quarantine, found)
    publications.create()
    readings.create()
    place, readings_place = publications.place(), readings.place()
    if BOUNDED not in readings_place.properties:
        with lease(place.location):
            bound_times(spark, readings)
    commits, writer = open_writer(spark, publications, place)
    _, readings_writer = open_writer(spark, readings, readings_place)
    own = open_folder(spark, place.location, snapshot.FOLDER)
    seen = Seen(publications, place.id, writer, commits, own)
    progress = Taken(
        commits, lambda version: newest_batches(publications.read(versionAsOf=version))
    )
    with lease(place.location):
        seen.load()
        progress.load(seen.covers)
        readings_sink = Readings(
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
        progress,
        Appender(
            seen, progress, writer, publications.name, Landing(landing).cleaned, conflicts.note
        ),
        readings_sink,
        Quarantine(spark, quarantine, landing),
        counted,
        own,
        place.signed,
        RowBatch if kind is PublicTable else MicroBatch,
    )


def newest_batches(rows: DataFrame) -> Feeds:
    """Return the number of the newest batch of each feed in a table's rows. Batches are read in
    order, so the table has all earlier batches, too.
    """
    found = rows.groupBy("gateway", "epoch").agg(F.max("batch").alias("batch")).collect()
    return {f"{one['gateway']}/{one['epoch']}": one["batch"] for one in found}
