"""A micro-batch as the driver sees it.

In: a DataFrame in the columns of `gateway.ingest.chunk`. Out: what it holds as ranges, what came from which feed, which batches are
damaged, its rows for the table.
"""

from collections import defaultdict
from dataclasses import dataclass
from types import TracebackType

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gateway.ingest.dedup import ChunkRange
from gateway.ingest.tables import PUBLICATIONS

DROP_DDL = "chunk bigint, device string, incarnation bigint, first bigint, last bigint"


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    gateway: str
    epoch: str
    batch: int
    reason: str


@dataclass(slots=True)
class FeedCount:
    """What came from one feed. number: its newest batch; taken: rows in its batches; rows: those left after doubles within a chunk."""

    number: int = 0
    taken: int = 0
    rows: int = 0


class MicroBatch:
    """Keeps the rows in memory (and on disk) for the length of a `with` block.

    feeds: what came from whole batches, by "GATEWAY/EPOCH"; held: their keys as ranges, in the order of the chunks; damaged: batches that
    gave no rows.
    """

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        self.feeds: defaultdict[str, FeedCount] = defaultdict(FeedCount)
        self.held: list[ChunkRange] = []
        self.damaged: list[DamagedBatch] = []

    def __enter__(self) -> "MicroBatch":
        first_ones = self._rows.where("header is not null or flaw is not null").select(
            "gateway", "epoch", "batch", "flaw", "chunk", "header"
        )
        for row in sorted(first_ones.toArrow().to_pylist(), key=lambda row: (row["chunk"], row["gateway"], row["epoch"], row["batch"])):
            if row["flaw"] is not None:
                self.damaged.append(DamagedBatch(row["gateway"], row["epoch"], row["batch"], row["flaw"]))
                continue
            for one in row["header"]["feeds"]:
                feed = self.feeds[f"{one['gateway']}/{one['epoch']}"]
                feed.number = max(feed.number, one["batch"])
                feed.taken += one["taken"]
                feed.rows += one["rows"]
            self.held += [(row["chunk"], one["device"], one["incarnation"], one["first"], one["last"]) for one in row["header"]["ranges"]]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._rows.unpersist()

    @property
    def taken(self) -> int:
        """Rows of all whole batches."""
        return sum(feed.taken for feed in self.feeds.values())

    def new_by_feed(self, drop: list[ChunkRange]) -> dict[str, int]:
        """How many rows of each feed are not in `drop`."""
        if not drop:
            return {name: feed.rows for name, feed in self.feeds.items()}
        counted = self.kept(drop).groupBy("gateway", "epoch").count().collect()
        return dict.fromkeys(self.feeds, 0) | {f"{row['gateway']}/{row['epoch']}": row["count"] for row in counted}

    def publications(self, drop: list[ChunkRange]) -> DataFrame:
        """The rows in the columns of `publications`, without those in `drop`."""
        return self.kept(drop).select(*(name for name, _, _ in PUBLICATIONS.columns))

    def kept(self, drop: list[ChunkRange]) -> DataFrame:
        """The rows, without those in `drop`."""
        rows = self._rows.where(self._as_before())
        if drop:
            dropped = F.broadcast(rows.sparkSession.createDataFrame(drop, DROP_DDL)).alias("dropped")
            same_set = [F.col(f"row.{name}") == F.col(f"dropped.{name}") for name in ("chunk", "device", "incarnation")]
            inside = F.col("row.sequence").between(F.col("dropped.first"), F.col("dropped.last"))
            rows = rows.alias("row").join(dropped, [*same_set, inside], "left_anti")
        return rows

    def _as_before(self) -> Column:
        """True for rows of whole batches. Spark reads rows again when an executor is lost; a batch that was whole and is damaged by now,
        or the other way round, would leave the ranges wrong, so it fails the write."""
        flawed = F.col("flaw").isNotNull()
        known = F.concat_ws("/", "gateway", "epoch", "batch").isin([f"{one.gateway}/{one.epoch}/{one.batch}" for one in self.damaged])
        changed = (flawed != known) if self.damaged else flawed
        return F.when(changed, F.raise_error(F.lit("a batch changed while it was read"))).otherwise(~flawed)
