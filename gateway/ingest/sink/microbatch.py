"""A micro-batch on the driver.

In: a DataFrame in the columns of `data_files.WRITTEN`. Out: its ranges, its counts by feed, its
damaged batches, and for each table the additions of a commit.
"""

import logging
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gateway.ingest.dedup.claim import ChunkRange
from gateway.ingest.dedup.ranges import Key, Ranges
from gateway.ingest.delta.causes import cause_of
from gateway.ingest.delta.storage import open_folder
from gateway.ingest.delta.transaction import Addition
from gateway.ingest.sink.merged_batches import ranges_of

TableName = Literal["publications", "readings"]

DROP_DDL = "file string, device string, incarnation bigint, first bigint, last bigint"

AS_CALLED = {"__globPaths__": "false"}
"""Options for Spark's reader. Spark then takes paths literally: characters such as `[1]` have no
special meaning.
"""

log = logging.getLogger("onceway.ingest")


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    gateway: str
    epoch: str
    batch: int
    reason: str


@dataclass(slots=True)
class FeedCount:
    """Counts of one feed. first, number: numbers of its oldest and its newest batch. arrived:
    number of rows in its batches. rows: number of these rows, where rows with the same key in one
    chunk count once.
    """

    first: int = 0
    number: int = 0
    arrived: int = 0
    rows: int = 0

    def add(self, number: int, arrived: int = 0, rows: int = 0) -> None:
        self.first = min(number, self.first or number)
        self.number = max(number, self.number)
        self.arrived += arrived
        self.rows += rows


class MicroBatch:
    """A micro-batch. feeds: counts by "GATEWAY/EPOCH". chunk_ranges: number and ranges of each
    chunk, by ascending number. damaged: batches without usable rows.
    """

    def __init__(self, written: DataFrame, locations: dict[TableName, str]) -> None:
        """Run Spark's tasks, which read the batches and write the files. locations: folders of the
        tables.
        """
        self._spark: SparkSession = written.sparkSession
        self._locations = locations
        self._files: dict[TableName, dict[int, dict[str, Any]]] = {
            "publications": {},
            "readings": {},
        }
        self._feeds: dict[int, list[dict[str, Any]]] = {}
        self._doubles: Counter[Key] = Counter()
        self.feeds: defaultdict[str, FeedCount] = defaultdict(FeedCount)
        self.chunk_ranges: list[tuple[int, Ranges]] = []
        self.damaged: list[DamagedBatch] = []
        rows = written.toArrow().to_pylist()
        for row in sorted(
            rows, key=lambda row: (row["chunk"], row["gateway"], row["epoch"], row["batch"])
        ):
            if row["header"] is None:
                self.feeds[f"{row['gateway']}/{row['epoch']}"].add(row["batch"])
            if row["flaw"] is not None:
                self.damaged.append(
                    DamagedBatch(row["gateway"], row["epoch"], row["batch"], row["flaw"])
                )
            elif row["header"] is not None:
                self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        chunk = row["chunk"]
        for table, files in self._files.items():
            if row[table] is not None:
                files[chunk] = row[table]
        self._feeds[chunk] = row["header"]["feeds"]
        for one in row["header"]["doubles"]:
            self._doubles[one["device"], one["incarnation"]] += one["rows"]
        for one in self._feeds[chunk]:
            self.feeds[f"{one['gateway']}/{one['epoch']}"].add(
                one["batch"], one["taken"], one["rows"]
            )
        self.chunk_ranges.append((chunk, ranges_of(row["header"])))

    @property
    def arrived(self) -> int:
        """Number of rows in all sound batches."""
        return sum(feed.arrived for feed in self.feeds.values())

    def doubles(self, drop: list[ChunkRange]) -> Counter[Key]:
        """Return the number of duplicates by device and incarnation: the rows in `drop`, and in
        each chunk all rows of a key except its first. drop: ranges of rows that are not new.
        """
        found = self._doubles.copy()
        for _, device, incarnation, first, last in drop:
            found[device, incarnation] += last - first + 1
        return +found

    def new_by_feed(self, drop: list[ChunkRange]) -> dict[str, int]:
        """Return for each feed the number of its rows that are not in the ranges `drop`."""
        dirty = {chunk for chunk, *_ in drop}
        found = dict.fromkeys(self.feeds, 0)
        for chunk, feeds in self._feeds.items():
            for one in feeds if chunk not in dirty else ():
                found[f"{one['gateway']}/{one['epoch']}"] += one["rows"]
        rows = self.addition("publications", drop).rows
        for row in rows.groupBy("gateway", "epoch").count().collect() if rows is not None else ():
            found[f"{row['gateway']}/{row['epoch']}"] += row["count"]
        return found

    def addition(self, table: TableName, drop: list[ChunkRange]) -> Addition:
        """Return the files of chunks without a row in `drop`. Of each other chunk, return the rows
        that are not in `drop`, to be written again.
        """
        dirty = {chunk for chunk, *_ in drop}
        files = self._files[table]
        actions = [one["action"] for chunk, one in files.items() if chunk not in dirty]
        again = [chunk for chunk in files if chunk in self._partly(drop)]
        return Addition(actions, self._without(table, again, drop) if again else None)

    def _partly(self, drop: list[ChunkRange]) -> set[int]:
        """Return the numbers of the chunks of which some rows are in the ranges `drop`, but not
        all.
        """
        dropped: defaultdict[int, int] = defaultdict(int)
        for chunk, _, _, first, last in drop:
            dropped[chunk] += last - first + 1
        return {
            chunk
            for chunk, count in dropped.items()
            if count < self._files["publications"][chunk]["rows"]
        }

    def publications(self) -> DataFrame:
        """Return all rows of all chunks, as they are in the files."""
        return self._read("publications", list(self._files["publications"]))

    def left_out(self, drop: list[ChunkRange]) -> DataFrame:
        """Return the publications in the ranges `drop`. The commit leaves them out."""
        return self._split("publications", sorted({chunk for chunk, *_ in drop}), drop, "left_semi")

    def _without(self, table: TableName, chunks: list[int], drop: list[ChunkRange]) -> DataFrame:
        return self._split(table, chunks, drop, "left_anti")

    def _read(self, table: TableName, chunks: list[int]) -> DataFrame:
        names = (self._files[table][chunk]["name"] for chunk in chunks)
        return self._spark.read.options(**AS_CALLED).parquet(
            *(f"{self._locations[table]}/{name}" for name in names)
        )

    def _split(
        self, table: TableName, chunks: list[int], drop: list[ChunkRange], how: str
    ) -> DataFrame:
        """Return the rows of `chunks` that are in `drop`, or those that are not. how: `left_semi`
        for the rows in `drop`, `left_anti` for the others.
        """
        names = {chunk: self._files[table][chunk]["name"] for chunk in chunks}
        rows = self._read(table, chunks)
        columns = rows.columns
        rows = rows.select("*", F.col("_metadata.file_name").alias("file")).alias("row")
        to_drop = [(names[chunk], *one) for chunk, *one in drop if chunk in names]
        dropped = F.broadcast(self._spark.createDataFrame(to_drop, DROP_DDL)).alias("dropped")
        same = [
            F.col(f"row.{name}") == F.col(f"dropped.{name}")
            for name in ("file", "device", "incarnation")
        ]
        inside = F.col("row.sequence").between(F.col("dropped.first"), F.col("dropped.last"))
        return rows.join(dropped, [*same, inside], how).select(
            *(F.col(f"row.{name}") for name in columns)
        )

    def discard(self, drop: list[ChunkRange]) -> None:
        """Delete the files that the commit does not name. Call this after the commit. Files that
        remain, for example after a crash, are deleted by `compact`.
        """
        dirty = {chunk for chunk, *_ in drop}
        for table, files in self._files.items():
            folder = open_folder(self._spark, self._locations[table])
            try:
                for chunk in dirty & files.keys():
                    folder.delete(files[chunk]["name"])
            except (Py4JError, OSError) as error:
                log.warning("unused files in %s were not deleted: %s", folder, cause_of(error))
