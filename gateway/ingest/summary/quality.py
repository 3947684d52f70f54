"""The table `quality`: for each day and incarnation of a device, the numbers of publications that
arrived, arrived late, are missing, or arrived again.

In: changes of `publications`, and its ranges of sequences. Out: a row per device, incarnation and
day. A missing sequence counts on the day when the next higher sequence in the table was received.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gateway.ingest.dedup.doubles import counted
from gateway.ingest.dedup.gaps import gaps
from gateway.ingest.dedup.ranges import RANGES, SeenRanges
from gateway.ingest.delta.tables import Layout, Table
from gateway.ingest.summary.changes import Changes, moment
from gateway.ingest.summary.progress import DerivedTable

LATE_S = 3600

QUALITY = Layout(
    "Counts of publications by device and day (UTC, by the time of receipt at the gateway)",
    (
        ("device", "string", "Name of the device; @GATEWAY for clients without an identity"),
        ("incarnation", "bigint", "As in publications"),
        ("day", "date", "Day of receipt at the gateway, or of landing if that is not known"),
        ("expected", "bigint", "Publications that its sequences announce: arrived + missing"),
        ("arrived", "bigint", "Publications in the table"),
        ("late", "bigint", "Publications that landed more than an hour after their receipt"),
        ("missing", "bigint", "Sequences that the table lacks, on the day of the next arrived one"),
        ("gaps", "array<struct<first:bigint,last:bigint>>", "Ranges of the missing sequences"),
        ("duplicates", "bigint", "Publications that arrived again on this day, and were left out"),
    ),
)
MADE = 1
"""Version of the rules by which rows are made. Increase it if the same publications would give
other rows.
"""

_KEY = ["device", "incarnation", "day"]
_COUNTS = ["arrived", "late", "duplicates"]


def follow(
    spark: SparkSession, table: Table, publications: Table, until: int, seen: SeenRanges
) -> None:
    """Bring the table up to version `until` of `publications`. seen: the sequences in that
    version.
    """
    lacking = _frame(spark, seen)
    all_rows = publications.read(versionAsOf=until)

    def rows(changes: Changes, before: DataFrame) -> DataFrame:
        return _rows(changes, before, lacking, all_rows)

    DerivedTable(spark, table, publications, "quality", MADE).follow(until, rows)


def _rows(
    changes: Changes, before: DataFrame, lacking: DataFrame, all_rows: DataFrame
) -> DataFrame:
    """Return the rows of the table. before: its current rows. lacking: the gaps of all devices, in
    the columns of `RANGES`. all_rows: all rows of `publications`.
    """
    new_rows, removed_rows = (
        rows.withColumn("day", F.to_date(moment()))
        for rows in (changes.new_rows, changes.removed_rows)
    )
    if changes.whole:  # keep days that `expire` deleted from publications
        never = F.lit("9999-12-31").cast("date")
        first = new_rows.agg(F.coalesce(F.min("day"), never).alias("first_day"))
        kept = before.join(first, F.col("day") < F.col("first_day"))
        known = kept.select(*_KEY, "arrived", "late", *_zeros("duplicates")).unionByName(
            before.select(*_KEY, *_zeros("arrived", "late"), "duplicates")
        )
    else:
        known = before.select(*_KEY, *_COUNTS)
    counts = (
        known.unionByName(_count(new_rows, 1))
        .unionByName(_count(removed_rows, -1))
        .unionByName(_doubles(changes, before.sparkSession))
        .where("day is not null")
        .groupBy(*_KEY)
        .agg(*(F.sum(name).alias(name) for name in _COUNTS))
    )
    earlier = before.select("device", "incarnation", "day", F.explode("gaps").alias("gap"))
    earlier = earlier.select("device", "incarnation", F.col("gap.last").alias("last"), "day")
    missing = (
        _with_day(lacking, earlier, new_rows, _dated(all_rows))
        .groupBy(*_KEY)
        .agg(
            F.sum(F.col("last") - F.col("first") + 1).alias("missing"),
            F.sort_array(F.collect_list(F.struct("first", "last"))).alias("gaps"),
        )
    )
    rows = counts.join(missing, _KEY, "full").na.fill(0, [*_COUNTS, "missing"])
    rows = rows.where("arrived > 0 or missing > 0 or duplicates > 0")
    rows = rows.withColumn("expected", F.col("arrived") + F.col("missing"))
    return rows.select([name for name, _, _ in QUALITY.columns])


def _dated(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", F.to_date(moment()))


def _with_day(
    lacking: DataFrame, earlier: DataFrame, new_rows: DataFrame, all_rows: DataFrame
) -> DataFrame:
    """Return each gap with the day of the row after it. This row is looked for in `earlier`, the
    present gaps with their days, then in `new_rows`, and last in `all_rows`: after a user has
    deleted rows, the row after a gap may be an old one.
    """
    by = ["device", "incarnation", "last"]
    fresh = _behind(new_rows, lacking).join(earlier, by, "left_anti")
    found = lacking.join(earlier.unionByName(fresh).dropDuplicates(by), by)
    rest = lacking.join(found, by, "left_anti").persist()
    try:
        if rest.isEmpty():
            return found
        return found.unionByName(rest.join(_behind(all_rows, rest), by))
    finally:
        rest.unpersist()


def _behind(rows: DataFrame, lacking: DataFrame) -> DataFrame:
    """Return the gaps of `lacking` that end just before one of `rows`, with the day of this row."""
    each = rows.select("device", "incarnation", (F.col("sequence") - 1).alias("last"), "day")
    ends = F.broadcast(lacking.select("device", "incarnation", "last"))
    return each.join(ends, ["device", "incarnation", "last"])


def _count(rows: DataFrame, sign: int) -> DataFrame:
    late = F.unix_timestamp("landed") - F.unix_timestamp("received") > LATE_S
    return rows.groupBy(*_KEY).agg(
        (sign * F.count("*")).alias("arrived"),
        (sign * F.count_if(late)).alias("late"),
        F.lit(0).cast("bigint").alias("duplicates"),
    )


def _doubles(changes: Changes, spark: SparkSession) -> DataFrame:
    rows = [(*key, 0, 0, count) for *key, count in counted(changes.commits)]
    return spark.createDataFrame(
        rows,
        "device string, incarnation bigint, day date, arrived bigint, late bigint,"
        " duplicates bigint",
    )


def _zeros(*names: str) -> list[Column]:
    return [F.lit(0).cast("bigint").alias(name) for name in names]


def _frame(spark: SparkSession, seen: SeenRanges) -> DataFrame:
    rows = [
        (one.device, one.incarnation, first, last) for one in gaps(seen) for first, last in one.gaps
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(RANGES)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, RANGES, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=RANGES))
