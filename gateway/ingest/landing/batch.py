"""The check of one batch.

In: the batch's manifest. Out: an Arrow table with the columns that the uplink writes, or the reason
why no row of the batch is used.
"""

import hashlib
import logging

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.ingest.landing.place import NO_FILE, Announced, Landing
from gateway.ingest.payload.decoded import LATEST
from gateway.payload import senml
from gateway.system.gateway_name import shown
from gateway.uplink.manifest import SCHEMA_VERSION

SCHEMA = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("client", pa.string()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("received", pa.int64()),
        pa.field("boot", pa.int64(), nullable=False),
        pa.field("monotonic", pa.int64(), nullable=False),
        pa.field("spool_id", pa.int64(), nullable=False),
    ]
)
"""Columns that an uplink writes (`gateway/uplink/README.md`)."""

UNPACKED_LIMIT = 1024 * 1024 * 1024
"""Largest size of an unpacked batch, in bytes."""

LATEST_RECEIVED = (senml.LATEST - senml.RELATIVE) * 1_000_000
"""Latest valid time of receipt, in µs since 1970. A relative SenML time is added to the time of
receipt (RFC 8428, section 4.5.3). The sum must not be after the year 9999.
"""

log = logging.getLogger("onceway.ingest")


class Damaged(Exception):
    """Error for a batch whose contents do not match its manifest. Its text is the reason."""


def read(landing: Landing, announced: Announced) -> pa.Table:
    """Return the rows of a batch at the landing place. Raises Damaged, or OSError if the landing
    place or the file cannot be read.
    """
    if announced.flaw is not None:
        raise Damaged(announced.flaw)
    try:
        data = landing.batch(announced)
    except FileNotFoundError:
        raise Damaged("the Parquet file is missing") from None
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        raise Damaged(f"the Parquet file cannot be read: {error.strerror}") from error
    return check(data, announced)


def flaw(landing: Landing, announced: Announced) -> str | None:
    """Return the reason why a batch is damaged; None if it is not. Raises OSError like `read`."""
    try:
        read(landing, announced)
    except Damaged as damage:
        return str(damage)
    return None


def check(data: bytes, announced: Announced) -> pa.Table:
    """Return the rows in the bytes of a batch. Raises Damaged if size, checksum, row count, schema
    or labels are wrong, if a value is missing or invalid, or if any other error occurs while the
    bytes are read.
    """
    try:
        return _checked(data, announced)
    except Damaged:
        raise
    except Exception as error:
        log.exception("%s batch %d: cannot read it", shown(announced.feed), announced.number)
        raise Damaged(f"not readable: {type(error).__name__}: {str(error)[:200]}") from error


def _checked(data: bytes, announced: Announced) -> pa.Table:
    if len(data) != announced.bytes:
        found = len(data) if len(data) < announced.bytes else f"more than {announced.bytes}"
        raise Damaged(f"{found} bytes instead of {announced.bytes}")
    if hashlib.sha256(data).hexdigest() != announced.sha256:
        raise Damaged("checksum does not match")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        _check_labels(file.metadata, announced)
        table = file.read(use_threads=False)
        table.validate(full=True)  # reading alone does not look whether strings are UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise Damaged(f"not readable as Parquet: {str(error)[:200]}") from error
    _check_table(table, announced)
    return _with_likely_times(table)


def _with_likely_times(table: pa.Table) -> pa.Table:
    """Return the table with null for each time of receipt that is too late for pandas. Such a time
    comes from a wrong clock.
    """
    index = SCHEMA.get_field_index("received")
    is_wrong = pc.greater_equal(table["received"], LATEST)
    if not pc.any(is_wrong).as_py():
        return table
    return table.set_column(
        index, SCHEMA.field(index), pc.if_else(is_wrong, None, table["received"])
    )


def _check_labels(metadata: pq.FileMetaData, announced: Announced) -> None:
    if (
        sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        > UNPACKED_LIMIT
    ):
        raise Damaged(f"unpacks to more than {UNPACKED_LIMIT} bytes")
    labels = {key.decode(): value.decode() for key, value in (metadata.metadata or {}).items()}
    version = labels.get("onceway.schema")
    if version != str(SCHEMA_VERSION):
        raise Damaged(f"unknown schema version {str(version)[:20]}")
    if (
        f"{labels.get('onceway.gateway')}/{labels.get('onceway.epoch')}" != announced.feed
        or labels.get("onceway.number") != str(announced.number)
    ):
        raise Damaged("the file belongs to another batch")


def _check_table(table: pa.Table, announced: Announced) -> None:
    found = {field.name: field.type for field in table.schema}
    expected = {field.name: field.type for field in SCHEMA}
    if found != expected or len(table.schema) != len(SCHEMA):
        names = table.schema.names
        wrong = sorted(
            name
            for name in found.keys() | expected.keys()
            if found.get(name) != expected.get(name) or names.count(name) > 1
        )
        raise Damaged(f"columns differ from the schema: {', '.join(wrong)[:200]}")
    if table.num_rows != announced.rows:
        raise Damaged(f"{table.num_rows} rows instead of {announced.rows}")
    for field in SCHEMA:
        if not field.nullable and table[field.name].null_count:
            raise Damaged(f"null in column {field.name}")
    if table.num_rows and pc.min(table["sequence"]).as_py() < 0:
        raise Damaged("negative sequence")
    received = pc.min_max(table["received"])
    if (
        received["min"].is_valid
        and not 0 <= received["min"].as_py() <= received["max"].as_py() <= LATEST_RECEIVED
    ):
        raise Damaged("an impossible time of receipt")
