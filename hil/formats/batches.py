"""Batches at the landing place, read and written from their format (gateway/uplink/README.md).

In: a Parquet file and its manifest. Out: the same rows as the first batch of another epoch.
"""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq


def first_of_epoch(data: bytes, manifest: bytes, epoch: str) -> tuple[bytes, bytes]:
    """The data and the manifest of a batch with the same rows that says it is the first one of
    another epoch.
    """
    labels = dict(pq.read_metadata(pa.BufferReader(data)).metadata or {})
    labels |= {b"onceway.epoch": epoch.encode(), b"onceway.number": b"1"}
    table = pq.read_table(pa.BufferReader(data)).replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(labels)
    copy = sink.getvalue().to_pybytes()
    sums = {"bytes": len(copy), "sha256": hashlib.sha256(copy).hexdigest()}
    said = {**json.loads(manifest), "epoch": epoch, "number": 1, **sums}
    return copy, json.dumps(said).encode()
