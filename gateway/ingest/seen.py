"""The cache of the commit log: which sequences the table holds, as of which version.

In: the table `publications` and its log. Out: `Seen`, brought up to the head of the log whenever it is asked.
"""

import logging
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from gateway.ingest import snapshot
from gateway.ingest.commits import APPLICATION, Commit, CommitLog, HistoryGone
from gateway.ingest.ranges import SeenRanges
from gateway.ingest.storage import Folder
from gateway.ingest.tables import Table

REWRITING = frozenset(
    {"RESTORE", "CREATE OR REPLACE TABLE", "CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE", "REPLACE TABLE AS SELECT", "CLONE"}
)
"""Operations after which rows that were in the table may be wanted again."""

log = logging.getLogger("onceway.ingest")


class Seen:
    """ranges: what the table held at version `covers` or before; turn: the last txnVersion of ours up to there.

    Sequences of rows that a user deleted stay in `ranges` as long as the log or a snapshot tells of them.
    """

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark = spark
        self._table = table
        detail = table.detail()
        self._table_id: str = detail["id"]
        self.location: str = detail["location"]
        self.commits = CommitLog(Folder(spark, self.location, "_delta_log"))
        self._snapshots = Folder(spark, self.location, snapshot.FOLDER)
        self.ranges = SeenRanges()
        self.covers = -1
        self.turn = 0

    def load(self) -> None:
        """Start from the newest snapshot, or without one from the table itself."""
        found = snapshot.load(self._snapshots, self._table_id)
        if found is None:
            self._rebuild()
        else:
            self.ranges, self.covers, self.turn = found.ranges, found.covers, found.turn
        self.catch_up()

    def save(self) -> None:
        snapshot.save(self._snapshots, snapshot.Snapshot(self.ranges, self.covers, self.turn, self._table_id))

    def catch_up(self) -> None:
        """Fold in what others committed since."""
        try:
            commits = list(self.commits.after(self.covers))
        except HistoryGone as gone:
            log.warning("%s. Reading the keys of the whole table", gone)
            self._rebuild()
            return
        if any(commit.operation in REWRITING for commit in commits):
            self._rebuild()
            return
        if any(commit.changes_data for commit in commits):
            changes = self._table.read(readChangeFeed="true", startingVersion=self.covers + 1, endingVersion=commits[-1].version)
            collect_ranges(changes.where("_change_type = 'insert'"), self.ranges)
        self._cover(commits)

    def landed(self, added: SeenRanges, commits: list[Commit]) -> None:
        """Our append is among `commits`, which follow on `covers`. If it is not alone, the next `catch_up` folds in all of them."""
        self.ranges.update(added)
        if len(commits) == 1:
            self._cover(commits)

    def _cover(self, commits: list[Commit]) -> None:
        for commit in commits:
            self.covers = commit.version
            self.turn = max(self.turn, commit.turn or 0)

    def _rebuild(self) -> None:
        """From the table. Version and turn come from one and the same state of it, as a compare-and-swap needs them."""
        started = time.monotonic()
        jvm: Any = self._spark._jvm
        session = self._spark._jsparkSession
        delta_log = jvm.org.apache.spark.sql.delta.DeltaLog
        delta_log.invalidateCache(session, jvm.org.apache.hadoop.fs.Path(self.location))
        state = delta_log.forTable(session, self.location).unsafeVolatileSnapshot()
        turn = state.transactions().get(APPLICATION)
        self.ranges, self.covers, self.turn = SeenRanges(), state.version(), turn.get() if turn.isDefined() else 0
        collect_ranges(self._table.read(versionAsOf=self.covers), self.ranges)
        if self.ranges.devices:
            log.info("read the keys of %d devices from version %d in %.1f s", self.ranges.devices, self.covers, time.monotonic() - started)


def collect_ranges(rows: DataFrame, into: SeenRanges) -> None:
    """Add the keys of `rows` to `into`, as ranges that Spark makes of them."""
    order = Window.partitionBy("device", "incarnation").orderBy("sequence")
    numbered = rows.select("device", "incarnation", "sequence", (F.col("sequence") - F.dense_rank().over(order)).alias("run"))
    ranges = numbered.groupBy("device", "incarnation", "run").agg(F.min("sequence").alias("first"), F.max("sequence").alias("last"))
    for batch in ranges.select("device", "incarnation", "first", "last").toArrow().to_batches():
        columns = (column.to_pylist() for column in batch.columns)
        for device, incarnation, first, last in zip(*columns, strict=True):
            into.add((device, incarnation), first, last + 1)
