"""Data files of the tables, made from the rows of a chunk. The task that reads the rows writes the
files, so that no row goes through Spark.

In: a chunk (`merged_batches.py`). Out: at most one Parquet file in the folder of each table, and
one Arrow row that describes them (`WRITTEN`). A file belongs to its table only once a commit names
it. Unreferenced files are deleted by the driver, or by `onceway ingest compact` after a week.
"""

import json
import secrets
import time
from contextlib import suppress
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from gateway.ingest.delta import connection, local_disk
from gateway.ingest.sink.merged_batches import CHUNK, in_arrow

PUBLICATION_COLUMNS = [
    *(
        "device",
        "incarnation",
        "sequence",
        "client",
        "topic",
        "payload",
        "received",
        "boot",
        "monotonic",
    ),
    *("gateway", "epoch", "batch", "spool_id", "undecodable", "landed", "ingested"),
]
KEY = ["device", "incarnation", "sequence"]
ORIGIN = ["gateway", "topic", "received"]
"""Columns, besides the key, that the tables `publications` and `readings` share."""

_FILE = pa.struct([("name", pa.string()), ("rows", pa.int64()), ("action", pa.string())])
_HEADER = CHUNK.field("header").type
SPARK_WRITTEN: StructType = from_arrow_schema(
    pa.schema(
        [
            ("chunk", pa.int64()),
            ("header", pa.struct([(field.name, field.type) for field in _HEADER])),
            ("publications", _FILE),
            ("readings", _FILE),
            ("gateway", pa.string()),
            ("epoch", pa.string()),
            ("batch", pa.int64()),
            ("flaw", pa.string()),
        ]
    )
)
WRITTEN: pa.Schema = in_arrow(SPARK_WRITTEN)


class DataFiles:
    """The writer of data files. publications, readings: the tables' folders, as Spark names
    them.
    """

    def __init__(self, publications: str, readings: str) -> None:
        self._locations = {"publications": publications, "readings": readings}

    def put(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Write the files of a chunk, and return the row that describes them. For a damaged or
        empty batch, no file is written.
        """
        first = (
            rows.slice(0, 1)
            .select(["chunk", "header", "gateway", "epoch", "batch", "flaw"])
            .to_pylist()[0]
        )
        if first["header"] is not None:
            first["publications"] = self._write(
                "publications", pa.Table.from_batches([rows.select(PUBLICATION_COLUMNS)])
            )
            first["readings"] = self._write("readings", flatten(rows))
        return pa.record_batch(
            [pa.array([first.get(field.name)], field.type) for field in WRITTEN], schema=WRITTEN
        )

    def _write(self, table: str, rows: pa.Table) -> dict[str, Any] | None:
        if not rows.num_rows:
            return None
        location = self._locations[table]
        name = f"part-{secrets.token_hex(16)}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="snappy", store_schema=False)
        data = sink.getvalue()
        file = f"{location.rstrip('/')}/{name}"
        try:
            connection.ask(file, lambda fs, path: fs.pipe_file(path, bytes(data)))
            local_disk.settle_files(location, [name])
        except OSError:
            with suppress(OSError):  # a partial file takes space on a full disk
                connection.ask(file, lambda fs, path: fs.rm_file(path))
            raise
        return {"name": name, "rows": rows.num_rows, "action": add_action(name, data.size, rows)}


def flatten(rows: pa.RecordBatch) -> pa.Table:
    """Return a chunk's readings, one row each, in the columns of the table `readings`."""
    lists = rows["readings"]
    parent, items = pc.list_parent_indices(lists), pc.list_flatten(lists)
    table = pa.Table.from_batches([rows.select(KEY)]).take(parent)
    starts = lists.offsets.take(parent)
    position = pc.subtract(
        pa.array(range(len(parent)), pa.int32()), pc.subtract(starts, lists.offsets[0])
    ).cast(pa.int32())
    table = table.append_column("position", position)
    for field in items.type:
        table = table.append_column(field.name, pc.struct_field(items, field.name))
    origin = rows.select(ORIGIN).take(parent)
    for name in ORIGIN:
        table = table.append_column(name, origin[name])
    return table


def add_action(name: str, size: int, rows: pa.Table) -> str:
    """Return the action of a commit that adds a file to its table, with the statistics that let
    readers skip it (Delta protocol, "Add File").
    """
    stats: dict[str, Any] = {
        "numRecords": rows.num_rows,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
    }
    for column in ("device", "sequence", "received", "landed", "time"):
        if column in rows.column_names:
            ends = pc.min_max(rows[column])
            stats["nullCount"][column] = rows[column].null_count
            for kind, end in (("minValues", "min"), ("maxValues", "max")):
                if (value := ends[end].as_py()) is not None:
                    stats[kind][column] = _stamp(value) if isinstance(value, datetime) else value
    add = {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": time.time_ns() // 1_000_000,
        "dataChange": True,
    }
    return json.dumps(
        {"add": {**add, "stats": json.dumps(stats, separators=(",", ":"))}}, separators=(",", ":")
    )


def _stamp(moment: datetime) -> str:
    """Return a time as text with milliseconds, rounded down. Readers of the statistics add one
    millisecond to a maximum.
    """
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
