"""Large tables, created in seconds: their files and commits are like those of the ingest, but do
not come through it.

In: a Spark session, the table's path, the number of rows and the devices. Out: `publications` and
`…_readings` with these rows, and a snapshot of the seen ranges, as after months of a job.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.ranges import SeenRanges
from gateway.ingest.delta.commits import CommitLog
from gateway.ingest.delta.storage import open_folder
from gateway.ingest.delta.tables import Layout, Place, Table, sibling_table
from gateway.ingest.delta.transaction import Addition, DeltaWriter
from gateway.ingest.payload.version import application_id
from gateway.ingest.sink.data_files import add_action
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.readings import READINGS
from tests.ingest.files import ranges_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Device = tuple[str, int]
"""Name and incarnation of a device."""

FILE_ROWS = 1_000_000
BEGIN_US = 1_700_006_400_000_000
"""Time at which the first row was received, in µs since 1970: a midnight (UTC)."""

STEP_US = 1000
"""Time between two rows, in µs."""

KINDS = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def make(
    spark: "SparkSession",
    path: Path,
    rows: int,
    devices: Sequence[Device],
    file_rows: int = FILE_ROWS,
    step_us: int = STEP_US,
) -> None:
    """Create the tables. The sequences of each device begin at 0, and a publication has one
    reading. rows: a multiple of the number of devices. step_us: time between two rows in µs.
    """
    publications = _table(spark, str(path), PUBLICATIONS)
    readings = _table(spark, sibling_table(str(path), "readings"), READINGS)
    place, version = publications.place(), 0
    log = _writer(spark, place)
    for addition in _files(path, PUBLICATIONS, rows, devices, file_rows, step_us):
        version = log.append(addition, version, {}, ("onceway/benchmark", version + 1))
    readings_log, readings_version = _writer(spark, readings.place()), 0
    for addition in _files(Path(readings.name), READINGS, rows, devices, file_rows, step_us):
        readings_version = readings_log.append(
            addition, readings_version, {}, (application_id(place.id), version)
        )
    seen = SeenRanges()
    seen.add(
        ranges_of(
            list(devices),
            np.zeros(len(devices), np.int64),
            np.full(len(devices), rows // len(devices) - 1),
        )
    )
    snapshot.save(
        open_folder(spark, place.location, snapshot.FOLDER),
        snapshot.Snapshot(seen, version, place.id),
    )


def _table(spark: "SparkSession", name: str, layout: Layout) -> Table:
    table = Table(spark, name, layout)
    table.create()
    return table


def _writer(spark: "SparkSession", place: Place) -> DeltaWriter:
    return DeltaWriter(
        spark, place.location, CommitLog(open_folder(spark, place.location, "_delta_log"))
    )


def _files(
    folder: Path,
    layout: Layout,
    rows: int,
    devices: Sequence[Device],
    file_rows: int,
    step_us: int,
) -> Iterator[Addition]:
    """Write the files of a table, and yield the additions for its commits. The rows are in the
    order of their arrival: each device in turn has one row.
    """
    names, incarnations = (pa.array(column) for column in zip(*devices, strict=True))
    for first in range(0, rows, file_rows):
        numbers = np.arange(first, min(first + file_rows, rows))
        which = pa.array((numbers % len(devices)).astype(np.int32))
        times = pa.array(BEGIN_US + numbers * step_us).cast(KINDS["timestamp"])
        known = {
            "device": names.take(which),
            "incarnation": incarnations.take(which),
            "sequence": pa.array(numbers // len(devices)),
            "received": times,
            "time": times,
            "position": pa.array(np.zeros(len(numbers), np.int32)),
            "value": pa.array(np.sqrt(numbers)),
        }
        columns = {
            name: known[name]
            if name in known
            else pa.repeat(pa.scalar(_usual(kind), KINDS[kind]), len(numbers))
            for name, kind, _ in layout.columns
        }
        table, name = pa.table(columns), f"part-{token_hex(16)}.parquet"
        pq.write_table(table, folder / name, compression="snappy", store_schema=False)
        yield Addition([add_action(name, (folder / name).stat().st_size, table)])


def _usual(kind: str) -> str | bytes | int | None:
    return {
        "string": "site-1",
        "binary": b"36 bytes of SenML in CBOR, or thereby",
        "bigint": 7,
    }.get(kind)
