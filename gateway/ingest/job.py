"""Everything that an ingest of one table consists of, put together.

In: a Spark session, the landing URL and the table's name. Out: tables that exist, and a sink that holds their state.
"""

from pyspark.sql import SparkSession

from gateway.ingest import snapshot
from gateway.ingest.append import Appender
from gateway.ingest.commits import CommitLog
from gateway.ingest.quarantine import QUARANTINE, Quarantine
from gateway.ingest.seen import Seen
from gateway.ingest.sink import Sink
from gateway.ingest.storage import Folder
from gateway.ingest.tables import PUBLICATIONS, Table, beside
from gateway.ingest.transaction import DeltaWriter


def open_sink(spark: SparkSession, landing: str, name: str) -> Sink:
    """The sink of the table `name`, which is made if there is none, with the seen ranges loaded."""
    table = Table(spark, name, PUBLICATIONS)
    table.create()
    detail = table.detail()
    commits = CommitLog(Folder(spark, detail.location, "_delta_log"))
    writer = DeltaWriter(spark, detail.location, commits)
    seen = Seen(table, detail.id, writer, commits, Folder(spark, detail.location, snapshot.FOLDER))
    seen.load()
    quarantine = Quarantine(spark, Table(spark, beside(table.name, "quarantine"), QUARANTINE), landing)
    return Sink(seen, Appender(seen, writer, detail.location), quarantine)
