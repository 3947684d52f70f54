"""Update of the tables `…_devices` and `…_quality` from `publications`.

In: the table. Out: one commit of each of the two tables, if there is anything new. The job may be
killed at any time, started twice, and run while the stream runs.
"""

from pyspark.sql import SparkSession

from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.seen import Seen
from gateway.ingest.delta.storage import open_folder
from gateway.ingest.delta.tables import Table, sibling_table
from gateway.ingest.delta.writers import open_writer
from gateway.ingest.summary import devices, quality


def summarise(spark: SparkSession, publications: Table) -> None:
    """Update the tables `…_devices` and `…_quality`. Raises Spark's errors if a table cannot be
    read or written.
    """
    place, kind = publications.place(), type(publications)
    commits, writer = open_writer(spark, publications, place)
    own = open_folder(spark, place.location, snapshot.FOLDER)
    seen = Seen(publications, place.id, writer, commits, own)
    seen.load()
    of_devices = kind(spark, sibling_table(publications.name, "devices"), devices.DEVICES)
    devices.follow(spark, of_devices, publications, seen.covers)
    of_days = kind(spark, sibling_table(publications.name, "quality"), quality.QUALITY)
    quality.follow(spark, of_days, publications, seen.covers, seen.ranges)
