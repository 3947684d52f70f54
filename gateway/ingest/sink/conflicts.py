"""Payload conflicts: two publications with one key and different payloads. It is unknown which one
is right, so the first stays in its table, and the second is stored in another table.

In: the duplicates of a micro-batch. Out: the duplicates whose payload has another meaning than that
of the row with their key (`gateway/payload/rewording.py`). Each is stored once in the table
`…_conflicts`, and logged as an error. This table reveals a device that counts wrongly, and two
devices with one identity.
"""

import logging

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from gateway.ingest.dedup.claim import ChunkRange
from gateway.ingest.delta.tables import Layout, Table
from gateway.ingest.sink.microbatch import MicroBatch
from gateway.payload.rewording import says_the_same

CONFLICTS = Layout(
    "Publications with a key that the table publications has with another payload",
    (
        ("device", "string", "Key, part 1, as in publications"),
        ("incarnation", "bigint", "Key, part 2, as in publications"),
        ("sequence", "bigint", "Key, part 3, as in publications"),
        ("topic", "string", "MQTT topic"),
        ("payload", "binary", "MQTT payload of this publication"),
        ("received", "timestamp", "Time of receipt at the gateway, if the gateway knew the time"),
        ("gateway", "string", "Gateway that sent this publication"),
        ("epoch", "string", "As in publications"),
        ("batch", "bigint", "Number of the batch in the epoch"),
        ("found", "timestamp", "When the conflict was found"),
    ),
)

_KEY = ["device", "incarnation", "sequence"]
_COLUMNS = [name for name, _, _ in CONFLICTS.columns[:-1]]
SAME_ROW = " and ".join(
    f"old.{name} = new.{name}" for name in (*_KEY, "payload", "gateway", "epoch", "batch")
)

_says_the_same = F.udf(lambda one, other: says_the_same(bytes(one), bytes(other)), BooleanType())

log = logging.getLogger("onceway.ingest")


class Conflicts:
    """The table of payload conflicts, created at the first conflict. The caller of `note` must hold
    the lease of `publications`.
    """

    def __init__(self, spark: SparkSession, publications: Table, table: Table) -> None:
        self._spark = spark
        self._publications = publications
        self._table = table

    def note(self, micro_batch: MicroBatch, drop: list[ChunkRange]) -> None:
        """Compare the payload of each duplicate with the payload of the same key in the table, or
        in this micro-batch. Store and log the duplicates whose payload has another meaning. drop:
        ranges of the duplicates.
        """
        if not drop:
            return
        _, devices, _, firsts, lasts = zip(*drop, strict=True)
        existing = self._publications.read().where(
            F.col("device").between(min(devices), max(devices))
            & F.col("sequence").between(min(firsts), max(lasts))
        )
        kept = existing.select(*_KEY, F.col("payload").alias("other")).union(
            micro_batch.publications().select(*_KEY, "payload")
        )
        left_out = micro_batch.left_out(drop).select(*_COLUMNS)
        twice = left_out.join(kept, _KEY).where("payload <> other")
        differing = twice.where(~_says_the_same("other", "payload")).select(*_COLUMNS).distinct()
        found = differing.collect()
        for one in found:
            log.error(
                "two payloads of one key: %s (incarnation %d) sequence %d arrived again in batch"
                " %d of %s/%s with another payload; the second payload is in %s",
                one["device"],
                one["incarnation"],
                one["sequence"],
                one["batch"],
                one["gateway"],
                one["epoch"],
                self._table.name,
            )
        if not found:
            return
        self._table.create()
        new = self._spark.createDataFrame(found, differing.schema)
        merge = self._table.delta().alias("old").merge(new.alias("new"), SAME_ROW)
        values = {name: f"new.{name}" for name in _COLUMNS}
        merge.whenNotMatchedInsert(values={**values, "found": "current_timestamp()"}).execute()
        self._table.settle()
