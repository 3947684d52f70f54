"""The table `devices`: gateway, board and firmware of each device over time, and its last status.

In: changes of `publications`. Out: a row for each state of a device (a slowly changing dimension).
If the firmware, board or gateway of a device changes, a row is added.

Board, firmware and link come from lists that a gateway's site publishes on the topic
`onceway/devices`, in the form of `onceway device list --json`. These lists are rows of
`publications`. Each other row of the gateway belongs to the last list received before it.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, MapType, StringType, StructField, StructType
from pyspark.sql.window import Window

from gateway.ingest.delta.tables import Layout, Table
from gateway.ingest.payload import decoded
from gateway.ingest.summary.changes import Changes, moment
from gateway.ingest.summary.progress import DerivedTable

LISTS = "onceway/devices"
STATUS_END = "/status"

DEVICES = Layout(
    "Each device by its incarnation, gateway, board, firmware and link, with first and last seen",
    (
        ("device", "string", "Name of the device"),
        (
            "incarnation",
            "bigint",
            "Number given to the device when its memory was empty; null if the registry lists the"
            " device with these values, but no publication has come with them",
        ),
        (
            "site",
            "string",
            "Gateway that received the publications, or whose registry lists the device",
        ),
        ("board", "string", "Kind of board, as the registry of the site says"),
        ("firmware", "string", "SHA-256 of the firmware's HEX file, as the registry says"),
        ("link", "string", "Where the device is attached, as the registry says"),
        ("first_seen", "timestamp", "When the first publication with these values was received"),
        ("last_seen", "timestamp", "When the last publication with these values was received"),
        (
            "listed",
            "timestamp",
            "Time of the newest list of the registry that changed the values to these",
        ),
        ("status", "map<string,double>", "Latest status of the device: boot, life, worn, …"),
        ("status_time", "timestamp", "When that status was received"),
        ("current", "boolean", "Whether this row is the newest of the device"),
    ),
)
MADE = 1
"""Version of the rules by which rows are made. Increase it if the same publications would give
other rows.
"""

_WHAT = ["device", "incarnation", "site", "board", "firmware", "link"]
_LISTED_AS = ["device", "site", "board", "firmware", "link"]
_SEEN = ["first_seen", "last_seen", "status", "status_time"]


def follow(spark: SparkSession, table: Table, publications: Table, until: int) -> None:
    """Bring the table of devices up to version `until` of `publications`."""
    DerivedTable(spark, table, publications, "devices", MADE).follow(until, _rows)


def _rows(changes: Changes, before: DataFrame) -> DataFrame:
    """Return the rows of the table after the changes. before: the present rows. Their devices stay
    in the table.
    """
    new_rows = changes.new_rows.withColumn("at", moment()).where("at is not null")
    listed_before = before.where("listed is not null").select(*_LISTED_AS, "listed")
    known = _intervals(listed_before.unionByName(_lists(new_rows)))
    seen = (
        before.where("first_seen is not null")
        .select(*_WHAT, *_SEEN)
        .unionByName(_with_status(_seen(new_rows, known)))
        .groupBy(*_WHAT)
        .agg(
            F.min("first_seen").alias("first_seen"),
            F.max("last_seen").alias("last_seen"),
            F.max_by("status", "status_time").alias("status"),
            F.max("status_time").alias("status_time"),
        )
    )
    # a device that is listed and was never seen gets a row without an incarnation
    names = {name: f"listed_{name}" for name in _LISTED_AS}
    listed = known.groupBy(*_LISTED_AS).agg(F.max("since").alias("listed"))
    listed = listed.withColumnsRenamed(names)
    same = [F.col(name).eqNullSafe(F.col(other)) for name, other in names.items()]
    either = [F.coalesce(name, other).alias(name) for name, other in names.items()]
    rows = seen.join(listed, same, "full").select(*either, "incarnation", *_SEEN, "listed")
    newest = Window.partitionBy("device").orderBy(
        F.desc_nulls_last("last_seen"), F.desc("first_seen"), F.desc("incarnation"), "site"
    )
    rows = rows.withColumn("current", F.row_number().over(newest) == 1)
    return rows.select([name for name, _, _ in DEVICES.columns])


def _seen(new_rows: DataFrame, known: DataFrame) -> DataFrame:
    """Join each row of `new_rows` with the registry's entry for its device at the time of the row.
    Return a row for each combination of `_WHAT`: when it was first and last seen, and its last
    status. known: the entries over time, from `_intervals`.
    """
    of_devices = new_rows.where(~F.col("device").startswith("@")).withColumnRenamed(
        "gateway", "site"
    )
    listed = F.broadcast(known.withColumnsRenamed({"site": "of_site", "device": "of_device"}))
    same = (F.col("site") == F.col("of_site")) & (F.col("device") == F.col("of_device"))
    over = F.col("until") <= F.col("at")
    then = (F.col("since") <= F.col("at")) & ~F.coalesce(over, F.lit(False))
    status = F.col("topic").endswith(STATUS_END)
    reported, when = F.when(status, F.col("payload")), F.when(status, F.col("at"))
    return (
        of_devices.join(listed, same & then, "left")
        .groupBy(*_WHAT)
        .agg(
            F.min("at").alias("first_seen"),
            F.max("at").alias("last_seen"),
            F.max_by(reported, when).alias("payload"),
            F.max(when).alias("status_time"),
        )
    )


def _lists(new_rows: DataFrame) -> DataFrame:
    """Return the entries of the registries' lists, each with its time. A payload that is not a list
    is ignored, and so is an entry without a name.
    """
    payload = F.try_parse_json(F.col("payload").cast("string"))
    lists = new_rows.where(F.col("topic") == LISTS).select(
        F.col("gateway").alias("site"),
        F.col("at").alias("listed"),
        F.explode(F.try_variant_get(payload, "$", "array<variant>")).alias("one"),
    )
    return lists.select(
        "site",
        _text("name").alias("device"),
        _text("board").alias("board"),
        _text("firmware").alias("firmware"),
        _text("port").alias("link"),
        "listed",
    ).where("device != ''")


def _text(name: str) -> Column:
    """Return the column of one field of a device list's entries; null where the field is
    another type than a JSON string.
    """
    value = F.try_variant_get("one", f"$.{name}", "variant")
    return F.when(
        F.schema_of_variant(value) == "STRING", F.try_variant_get("one", f"$.{name}", "string")
    )


def _intervals(listed: DataFrame) -> DataFrame:
    """Return the states that each device had in its registry's lists, one row for each. `since`:
    time of the first list with the state. `until`: time of the next list with another state; null
    for the newest state.
    """
    order = Window.partitionBy("site", "device").orderBy("listed")
    state = F.struct("board", "firmware", "link")
    changed = (
        listed.withColumn("new", ~state.eqNullSafe(F.lag(state).over(order)))
        .where("new")
        .withColumn("until", F.lead("listed").over(order))
    )
    return changed.drop("new").withColumnRenamed("listed", "since")


def _with_status(seen: DataFrame) -> DataFrame:
    others = [field for field in seen.schema if field.name != "payload"]
    schema = StructType([*others, StructField("status", MapType(StringType(), DoubleType()))])
    return seen.mapInArrow(_decode, schema)


def _decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replace the column `payload` by `status`, a map of the payload's numeric values by name. For
    Spark's mapInArrow.
    """
    kind = pa.map_(pa.string(), pa.float64())
    for batch in batches:
        payload = batch["payload"].fill_null(b"")
        unknown = pa.nulls(len(payload), pa.timestamp("us", "UTC"))
        readings, _ = decoded.columns(batch["device"], payload.cast(pa.binary()), unknown)
        pairs = [
            found and [(one["name"], one["value"]) for one in found if one["value"] is not None]
            for found in readings.to_pylist()
        ]
        yield batch.drop_columns(["payload"]).append_column("status", pa.array(pairs, kind))
