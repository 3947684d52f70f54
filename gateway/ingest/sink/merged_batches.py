"""A chunk: the rows of some batches, each key once, with their ranges of sequences.

In: checked batches (Arrow tables in the uplink's columns). Out: one Arrow record batch in the
columns of `CHUNK`.

The driver decides from the ranges alone which rows are new, so it does not read single rows. Every
row carries its chunk's number, and the first row of a chunk carries the header. The header has the
chunk's ranges, as one binary value that Spark does not change. It has for each batch the number of
its rows, and the number without duplicates within the chunk. It also has the number of these
duplicates by device. A damaged batch is a separate row, with the reason in the column `flaw` and -1
as its chunk.
"""

from datetime import UTC, datetime
from inspect import signature
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from gateway.ingest.dedup.finding import find_ranges, in_order
from gateway.ingest.dedup.ranges import RANGES, Ranges
from gateway.ingest.landing.place import Announced
from gateway.ingest.payload import decoded
from gateway.system.gateway_name import shown

_FEED = pa.struct(
    [
        ("gateway", pa.string()),
        ("epoch", pa.string()),
        ("batch", pa.int64()),
        ("taken", pa.int64()),
        ("rows", pa.int64()),
    ]
)

_DOUBLES = pa.struct([("device", pa.string()), ("incarnation", pa.int64()), ("rows", pa.int64())])

_HEADER = pa.struct(
    [
        ("feeds", pa.list_(_FEED)),
        ("ranges", pa.binary()),
        ("doubles", pa.list_(_DOUBLES)),
    ]
)


def in_arrow(schema: StructType) -> pa.Schema:
    """Return a schema of Spark as the Arrow schema that Spark requires from a source, with times in
    UTC. Spark 4.2 must be told the time zone; 4.1 uses UTC by default.
    """
    zone: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    )
    return to_arrow_schema(schema, **zone)


SPARK_CHUNK: StructType = from_arrow_schema(
    pa.schema(
        [
            ("device", pa.string()),
            ("incarnation", pa.int64()),
            ("sequence", pa.int64()),
            ("client", pa.string()),
            ("topic", pa.string()),
            ("payload", pa.binary()),
            ("received", pa.timestamp("us", "UTC")),
            ("boot", pa.int64()),
            ("monotonic", pa.int64()),
            ("spool_id", pa.int64()),
            ("undecodable", pa.string()),
            ("landed", pa.timestamp("us", "UTC")),
            ("ingested", pa.timestamp("us", "UTC")),
            ("readings", pa.list_(decoded.READING)),
            ("gateway", pa.string()),
            ("epoch", pa.string()),
            ("batch", pa.int64()),
            ("chunk", pa.int64()),
            ("header", _HEADER),
            ("flaw", pa.string()),
        ]
    )
)
CHUNK: pa.Schema = in_arrow(SPARK_CHUNK)


def build(
    batches: list[tuple[Announced, pa.Table]], number: int, counted: bool = False
) -> pa.RecordBatch | None:
    """Return the rows of `batches` as chunk `number`; None if there are no rows. Of duplicates,
    only the first one is kept. counted: whether another chunk has counted these rows already.
    """
    batches = [(announced, table) for announced, table in batches if table.num_rows]
    if not batches:
        return None
    rows = pa.concat_tables(
        [_with_origin(table, announced) for announced, table in batches]
    ).combine_chunks()
    first_ones, ranges = find_ranges(rows)
    feeds = _feeds(batches, first_ones)
    doubles = _doubles(rows, first_ones)
    if counted:
        feeds = [{**feed, "taken": 0} for feed in feeds]
        doubles = _counted_already(rows)
    if len(first_ones) < rows.num_rows:
        rows = rows.take(pa.array(first_ones))
    columns = {name: rows[name] for name in rows.column_names}
    columns["received"] = columns["received"].cast(CHUNK.field("received").type)
    columns["readings"], columns["undecodable"] = decoded.columns(
        columns["device"], columns["payload"], columns["received"]
    )
    columns["chunk"] = pa.array(np.full(rows.num_rows, number), pa.int64())
    columns["header"] = _header(feeds, ranges, doubles, rows.num_rows)
    return _record_batch(columns, rows.num_rows)


def contradicting(batches: list[tuple[Announced, pa.Table]], number: int) -> pa.RecordBatch | None:
    """Return the duplicates that `build` leaves out although their payload differs from that of the
    first row with the same key; None if there are none. They form the chunk `number`, and the
    driver compares them with the rows in the table.
    """
    rows = pa.concat_tables([table for _, table in batches]).combine_chunks()
    order, fresh, _ = in_order(rows)
    if fresh.all():
        return None
    firsts = order[fresh][
        np.cumsum(fresh) - 1
    ]  # for each row in this order: the first row of its key
    payload = rows["payload"].combine_chunks()
    other = pc.not_equal(payload.take(pa.array(order)), payload.take(pa.array(firsts)))
    chosen = np.zeros(rows.num_rows, bool)
    chosen[order] = other.to_numpy(zero_copy_only=False)
    if not chosen.any():
        return None
    ends = np.cumsum([table.num_rows for _, table in batches])[:-1]
    parts = zip(batches, np.split(chosen, ends), strict=True)
    return build(
        [(announced, table.filter(pa.array(part))) for (announced, table), part in parts],
        number,
        counted=True,
    )


def damaged(announced: Announced, reason: str) -> pa.RecordBatch:
    """Return the row that reports a damaged batch. The reason is escaped, because it may quote
    anything from a landed file.
    """
    return _about(announced, shown(reason))


def without_rows(announced: Announced) -> pa.RecordBatch:
    """Return the row that reports a sound batch without rows, so that the batch counts as read."""
    return _about(announced, None)


def _with_origin(table: pa.Table, announced: Announced) -> pa.Table:
    gateway, epoch = announced.feed.split("/")
    ingested = datetime.now(UTC)
    origin = {
        "gateway": gateway,
        "epoch": epoch,
        "batch": announced.number,
        "landed": announced.landed or ingested,
        "ingested": ingested,
    }
    for name, value in origin.items():
        table = table.append_column(
            name, pa.repeat(pa.scalar(value, CHUNK.field(name).type), table.num_rows)
        )
    return table


def _feeds(batches: list[tuple[Announced, pa.Table]], first_ones: Any) -> list[dict[str, Any]]:
    """Return for each batch: gateway, epoch, number, the number of its rows, and the same without
    duplicates. first_ones: positions, in all batches together, of the rows that are not duplicates.
    """
    ends = np.cumsum([table.num_rows for _, table in batches])
    remaining = np.bincount(
        np.searchsorted(ends, first_ones, side="right"), minlength=len(batches)
    ).tolist()
    found = []
    for (announced, table), rows in zip(batches, remaining, strict=True):
        gateway, epoch = announced.feed.split("/")
        found.append(
            {
                "gateway": gateway,
                "epoch": epoch,
                "batch": announced.number,
                "taken": table.num_rows,
                "rows": rows,
            }
        )
    return found


def _doubles(rows: pa.Table, first_ones: Any) -> list[dict[str, Any]]:
    """Return the number of duplicates by device and incarnation. first_ones: positions of the rows
    that are not duplicates.
    """
    if len(first_ones) == rows.num_rows:
        return []
    chosen = np.ones(rows.num_rows, bool)
    chosen[first_ones] = False
    return _by_device(rows.filter(pa.array(chosen)))


def _counted_already(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the number of rows by device and incarnation, as negative numbers. `build` has counted
    these rows as duplicates in another chunk. The driver counts them again when it leaves them out,
    and the negative numbers cancel this second count.
    """
    return [{**one, "rows": -one["rows"]} for one in _by_device(rows)]


def _by_device(rows: pa.Table) -> list[dict[str, Any]]:
    keys = ["device", "incarnation"]
    counted = rows.select(keys).group_by(keys).aggregate([([], "count_all")])
    found: list[dict[str, Any]] = counted.rename_columns(
        [field.name for field in _DOUBLES]
    ).to_pylist()
    return found


def _about(announced: Announced, reason: str | None) -> pa.RecordBatch:
    gateway, epoch = announced.feed.split("/")
    values = {
        "gateway": gateway,
        "epoch": epoch,
        "batch": announced.number,
        "chunk": -1,
        "flaw": reason,
    }
    return _record_batch(
        {name: pa.array([value], CHUNK.field(name).type) for name, value in values.items()}, 1
    )


def _header(
    feeds: list[dict[str, Any]],
    ranges: pa.RecordBatch,
    doubles: list[dict[str, Any]],
    rows: int,
) -> pa.Array:
    kind = CHUNK.field("header").type
    first = {"feeds": feeds, "ranges": ranges.serialize().to_pybytes(), "doubles": doubles}
    return pa.concat_arrays([pa.array([first], kind), pa.nulls(rows - 1, kind)])


def ranges_of(header: dict[str, Any]) -> Ranges:
    """Return the ranges of sequences in a chunk. header: the first value of its column `header`."""
    return Ranges.of(pa.ipc.read_record_batch(header["ranges"], RANGES))


def _record_batch(columns: dict[str, Any], rows: int) -> pa.RecordBatch:
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in CHUNK
    ]
    return pa.record_batch(
        [
            array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            for array in arrays
        ],
        schema=CHUNK,
    )
