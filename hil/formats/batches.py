"""Batches at the landing place, read and written from their format (gateway/uplink/README.md).

In: a Parquet file, its manifest and the gateway's key. Out: the same rows as the first batch of
another epoch, signed.
"""

import hashlib
import json
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

SIGNED_BEHIND = b"onceway manifest\n"
SIGNATURE = ("key", "signature")


def first_of_epoch(data: bytes, manifest: bytes, epoch: str, key: bytes) -> tuple[bytes, bytes]:
    """The data and the manifest of a batch with the same rows that says it is the first one of
    another epoch. key: PEM, of an Ed25519 key.
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
    return copy, _signed({**json.loads(manifest), "epoch": epoch, "number": 1, **sums}, key)


def _signed(manifest: dict[str, Any], key: bytes) -> bytes:
    made = load_pem_private_key(key, None)
    if not isinstance(made, Ed25519PrivateKey):
        raise TypeError("this is no Ed25519 key")
    fields = {name: value for name, value in manifest.items() if name not in SIGNATURE}
    signature = made.sign(SIGNED_BEHIND + json.dumps(fields, ensure_ascii=False).encode())
    name = hashlib.sha256(made.public_key().public_bytes_raw()).hexdigest()[:16]
    said = {**fields, "key": name, "signature": b64encode(signature).decode()}
    return json.dumps(said, ensure_ascii=False).encode()
