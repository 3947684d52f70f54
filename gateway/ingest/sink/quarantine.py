"""The table of damaged batches. A batch is in quarantine until it is repaired and released. After
that, its row stays in the table.

In: damaged batches of a micro-batch, and batches that were repaired and added to the table. Out:
one row per batch in the table `…_quarantine`, even if a batch is found damaged several times.
"""

import logging

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gateway.ingest.delta.tables import Layout, Table
from gateway.ingest.landing.place import UNREADABLE
from gateway.ingest.sink.microbatch import DamagedBatch
from gateway.uplink.manifest import file_stem

QUARANTINE = Layout(
    "Batches that were damaged when they were read; none of their rows are in publications",
    (
        ("gateway", "string", "Gateway that made the batch"),
        ("epoch", "string", "As in publications"),
        ("batch", "bigint", "Number of the batch"),
        ("url", "string", "The Parquet file"),
        ("reason", "string", "Reason of the quarantine"),
        ("found", "timestamp", "When the damage was first found"),
        (
            "released",
            "timestamp",
            "When the repaired batch was added to the table; null if it was not added",
        ),
    ),
)

SAME_BATCH = "old.gateway = new.gateway and old.epoch = new.epoch and old.batch = new.batch"

log = logging.getLogger("onceway.ingest")


class Quarantine:
    """The table of damaged batches, created at the first damaged batch. The caller of `add` and
    `release` must hold the lease of `publications`.
    """

    def __init__(self, spark: SparkSession, table: Table, landing: str) -> None:
        self._spark = spark
        self._table = table
        self._landing = landing.rstrip("/")
        self.has_unreadable = True
        """Whether quarantine may contain an intact batch that the ingest could not read at the
        time. The ingest tries to read such a batch again.
        """

    def add(self, damaged: list[DamagedBatch]) -> None:
        """Add damaged batches. If a batch is in the table already, its reason is replaced, and it
        counts as not released.
        """
        if not damaged:
            return
        for one in damaged:
            log.warning(
                "quarantine: %s/%s batch %d: %s", one.gateway, one.epoch, one.batch, one.reason
            )
            self.has_unreadable = self.has_unreadable or one.reason.startswith(UNREADABLE)
        rows = [(one.gateway, one.epoch, one.batch, self._url(one), one.reason) for one in damaged]
        found = self._spark.createDataFrame(
            rows, "gateway string, epoch string, batch bigint, url string, reason string"
        )
        self._table.create()
        merge = self._table.delta().alias("old").merge(found.alias("new"), SAME_BATCH)
        merge = merge.whenMatchedUpdate(
            set={"reason": "new.reason", "released": F.lit(None).cast("timestamp")}
        )
        fresh = {
            column: f"new.{column}" for column in ("gateway", "epoch", "batch", "url", "reason")
        }
        merge.whenNotMatchedInsert(values={**fresh, "found": "current_timestamp()"}).execute()
        self._table.settle()

    def open(self, reason: str = "") -> list[tuple[str, int]]:
        """Return (feed, number) of the batches that are not released, in order. reason: only
        batches whose reason begins with this text.
        """
        if not self._table.exists():
            return []
        rows = (
            self._table.read()
            .where("released is null")
            .where(F.col("reason").startswith(reason))
            .select("gateway", "epoch", "batch")
            .collect()
        )
        return sorted((f"{row['gateway']}/{row['epoch']}", row["batch"]) for row in rows)

    def release(self, batches: list[tuple[str, int]]) -> None:
        """Record that the rows of these batches are in the table now. batches: (feed, number) of
        each batch.
        """
        rows = [(*feed.split("/"), number) for feed, number in batches]
        accepted = self._spark.createDataFrame(rows, "gateway string, epoch string, batch bigint")
        merge = self._table.delta().alias("old").merge(accepted.alias("new"), SAME_BATCH)
        merge.whenMatchedUpdate(set={"released": "current_timestamp()"}).execute()
        self._table.settle()

    def _url(self, one: DamagedBatch) -> str:
        return f"{self._landing}/{one.gateway}/{one.epoch}/{file_stem(one.batch)}.parquet"
