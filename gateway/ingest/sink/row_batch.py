"""A micro-batch whose rows go through Spark, for a writer that cannot commit files.

In: a DataFrame with the columns of `merged_batches.CHUNK`. Out: the same as from
`microbatch.MicroBatch`. Spark keeps the rows, in memory or on its disks, until they are committed.
"""

from collections import defaultdict

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gateway.ingest.dedup.claim import ChunkRange
from gateway.ingest.delta.transaction import Addition
from gateway.ingest.sink.data_files import PUBLICATION_COLUMNS
from gateway.ingest.sink.microbatch import MicroBatch, TableName
from gateway.ingest.sink.readings import exploded

DROP_DDL = "chunk bigint, device string, incarnation bigint, first bigint, last bigint"


class RowBatch(MicroBatch):
    def __init__(self, rows: DataFrame, locations: dict[TableName, str]) -> None:
        self._rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        no_file = F.lit(None).cast("int")
        headers = self._rows.where("header is not null or chunk < 0").select(
            *("chunk", "header", "gateway", "epoch", "batch", "flaw"),
            no_file.alias("publications"),
            no_file.alias("readings"),
        )
        super().__init__(headers, locations)
        self._count = {
            chunk: sum(one["rows"] for one in feeds) for chunk, feeds in self._feeds.items()
        }

    def new_by_feed(self, drop: list[ChunkRange]) -> dict[str, int]:
        dirty, found = {chunk for chunk, *_ in drop}, dict.fromkeys(self.feeds, 0)
        for chunk, feeds in self._feeds.items():
            for one in feeds if chunk not in dirty else ():
                found[f"{one['gateway']}/{one['epoch']}"] += one["rows"]
        partly = self._some_of(drop)
        remaining = self._split(partly, drop, "left_anti") if partly else None
        for row in (
            remaining.groupBy("gateway", "epoch").count().collect() if remaining is not None else ()
        ):
            found[f"{row['gateway']}/{row['epoch']}"] += row["count"]
        return found

    def addition(self, table: TableName, drop: list[ChunkRange]) -> Addition:
        """Return the rows of all chunks, for the table `table`, except those in `drop`."""
        dirty, partly = {chunk for chunk, *_ in drop}, self._some_of(drop)
        whole = [chunk for chunk in self._count if chunk not in dirty]
        parts = [self._rows.where(_in(whole))] if whole else []
        parts += [self._split(partly, drop, "left_anti")] if partly else []
        if not parts:
            return Addition()
        rows = parts[0] if len(parts) == 1 else parts[0].union(parts[1])
        return Addition(
            rows=rows.select(*PUBLICATION_COLUMNS) if table == "publications" else exploded(rows)
        )

    def publications(self) -> DataFrame:
        return self._rows.where(_in(list(self._count))).select(*PUBLICATION_COLUMNS)

    def left_out(self, drop: list[ChunkRange]) -> DataFrame:
        chunks = sorted({chunk for chunk, *_ in drop})
        return self._split(chunks, drop, "left_semi").select(*PUBLICATION_COLUMNS)

    def discard(self, drop: list[ChunkRange]) -> None:
        """Release the copies of the rows that Spark keeps in memory and on disk."""
        self._rows.unpersist()

    def _some_of(self, drop: list[ChunkRange]) -> list[int]:
        """Return the numbers of the chunks that have rows inside and rows outside the ranges
        `drop`.
        """
        dropped: defaultdict[int, int] = defaultdict(int)
        for chunk, _, _, first, last in drop:
            dropped[chunk] += last - first + 1
        return sorted(chunk for chunk, count in dropped.items() if count < self._count[chunk])

    def _split(self, chunks: list[int], drop: list[ChunkRange], how: str) -> DataFrame:  # type: ignore[override]
        rows = self._rows.where(_in(chunks)).alias("row")
        to_drop = F.broadcast(self._spark.createDataFrame(drop, DROP_DDL)).alias("dropped")
        same = [
            F.col(f"row.{name}") == F.col(f"dropped.{name}")
            for name in ("chunk", "device", "incarnation")
        ]
        inside = F.col("row.sequence").between(F.col("dropped.first"), F.col("dropped.last"))
        return rows.join(to_drop, [*same, inside], how)


def _in(chunks: list[int]) -> Column:
    return F.col("chunk").isin(chunks)
