"""A chunk: the rows of some batches, each key once, with the ranges of sequences that they hold.

In: checked batches (Arrow tables in the uplink's columns). Out: one Arrow record batch in the
columns of `CHUNK`.

The driver decides which rows are new from the ranges alone, so it never looks at single rows. Every
row carries its chunk's number, and the first row of a chunk carries the header: its ranges (one
value of bytes, which Spark passes on as it is), for each batch how many rows were taken from it and
how many are left after those that come twice in the chunk, and of which devices these are. A
damaged batch is a row of its own, with the reason under `flaw` and chunk -1.
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
    """The same columns, exactly as Spark wants them from a source, with times in UTC. Spark 4.2 has
    to be told that; 4.1 does so anyway.
    """
    told: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    )
    return to_arrow_schema(schema, **told)


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
    """The rows of `batches` as chunk `number`; None when there are none. A key that comes twice
    stays where it comes first. counted: another chunk has counted them as taken.
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
    """What `build` leaves out although its payload is another than that of the first row with its
    key: a chunk of its own, which the driver compares; None when there is nothing of the kind.
    """
    rows = pa.concat_tables([table for _, table in batches]).combine_chunks()
    order, fresh, _ = in_order(rows)
    if fresh.all():
        return None
    firsts = order[fresh][np.cumsum(fresh) - 1]  # in that order: the first row of each one's key
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
    """The row that reports a damaged batch. A reason may quote anything from a landed file."""
    return _about(announced, shown(reason))


def without_rows(announced: Announced) -> pa.RecordBatch:
    """The row that reports a whole batch in which nothing is: it is taken too."""
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
    """Per batch: rows taken, and rows left. first_ones: positions of the rows that are left."""
    ends = np.cumsum([table.num_rows for _, table in batches])
    left = np.bincount(
        np.searchsorted(ends, first_ones, side="right"), minlength=len(batches)
    ).tolist()
    found = []
    for (announced, table), rows in zip(batches, left, strict=True):
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
    """Of which devices the rows are that come twice, and how many. first_ones: the others."""
    if len(first_ones) == rows.num_rows:
        return []
    chosen = np.ones(rows.num_rows, bool)
    chosen[first_ones] = False
    return _by_device(rows.filter(pa.array(chosen)))


def _counted_already(rows: pa.Table) -> list[dict[str, Any]]:
    """All of them will be left out, and the chunk that they were taken from has counted them."""
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
    """The ranges of a chunk, by its header."""
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
