"""The tables `…_devices` and `…_quality` are brought up to date with `publications`.

In: the table. Out: one commit of each of the two, if there is anything new. May be killed at any
moment, started twice, and run beside the stream.
"""

from pyspark.sql import SparkSession

from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.seen import Seen
from gateway.ingest.delta.commits import CommitLog
from gateway.ingest.delta.storage import open_folder
from gateway.ingest.delta.tables import Table, beside
from gateway.ingest.delta.transaction import DeltaWriter
from gateway.ingest.summary import devices, quality


def summarise(spark: SparkSession, publications: Table) -> None:
    """Raises what Spark raises when a table cannot be read or written."""
    place = publications.place()
    commits = CommitLog(open_folder(spark, place.location, "_delta_log"))
    own = open_folder(spark, place.location, snapshot.FOLDER)
    writer = DeltaWriter(spark, place.location, commits)
    seen = Seen(publications, place.id, writer, commits, own)
    seen.load()
    of_devices = Table(spark, beside(publications.name, "devices"), devices.DEVICES)
    devices.follow(spark, of_devices, publications, seen.covers)
    of_days = Table(spark, beside(publications.name, "quality"), quality.QUALITY)
    quality.follow(spark, of_days, publications, seen.covers, seen.ranges)
