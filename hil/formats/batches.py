"""Batches at the landing place, read and written as gateway/uplink/README.md describes them. In: a
Parquet file, its manifest and the gateway's key. Out: the same rows as a batch of another epoch or
number, signed; whether a manifest is signed by that key.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

SIGNED_BEHIND = b"onceway manifest\n"
SIGNATURE = ("key", "signature")
CHANGES = ((b"\x01\x61V", b"\x01\x61A"), (b"\x64adc0", b"\x64adc1"), (b"", b""))
"""Changes of a reading of a board: another unit, another name, and none of both."""


def relabelled(
    data: bytes,
    manifest: bytes,
    epoch: str,
    number: int,
    key: bytes | None,
    *,
    reworded: str = "",
    plain: bool = False,
) -> tuple[bytes, bytes]:
    """Return data and manifest of a copy of a batch. The copy consists of other bytes, and has this
    epoch and number. key: PEM, of an Ed25519 key; empty for a manifest without signature,
    None for the signature of the given manifest. reworded:
    a text by which each payload changes; all other cells stay. plain: whether to leave pages
    uncompressed.
    """
    labels = dict(pq.read_metadata(pa.BufferReader(data)).metadata or {})
    labels |= {b"onceway.epoch": epoch.encode(), b"onceway.number": str(number).encode()}
    table = pq.read_table(pa.BufferReader(data)).replace_schema_metadata(None)
    if reworded:
        payloads = enumerate(table["payload"].to_pylist())
        others = pa.array([_reworded(one, row, reworded) for row, one in payloads], pa.binary())
        at = table.schema.get_field_index("payload")
        table = table.set_column(at, table.schema.field(at), others)
    copy = compact(table, labels, plain=plain)
    sums = {"bytes": len(copy), "sha256": hashlib.sha256(copy).hexdigest()}
    fields = {**json.loads(manifest), "epoch": epoch, "number": number, **sums}
    if key:
        return copy, signed(fields, key)
    kept = {name: value for name, value in fields.items() if key is None or name not in SIGNATURE}
    return copy, json.dumps(kept, ensure_ascii=False).encode()


def _reworded(payload: bytes, row: int, text: str) -> bytes:
    """Return a payload of another meaning: by `row`, a reading of a board gets one of CHANGES, or
    another value. Any other payload gets `text` at its end.
    """
    old, new = CHANGES[row % len(CHANGES)]
    if old not in payload or CHANGES[1][0] not in payload or text != "!":
        return payload + text.encode()
    return payload.replace(old, new, 1) if old else payload[:-1] + bytes([payload[-1] ^ 1])


def compact(table: pa.Table, labels: dict[bytes, bytes], *, plain: bool = False) -> bytes:
    """Return rows as a small Parquet file. labels: key-value metadata. plain: whether to leave
    pages uncompressed. (A damaged compressed page could not be read.)
    """
    sink = pa.BufferOutputStream()
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    small: dict[str, Any] = (
        {"compression": "none", "use_dictionary": False}
        if plain
        else {
            "compression": "zstd",
            "compression_level": 9,
            "use_dictionary": ["device", "client", "topic"],
            "column_encoding": dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
            "write_statistics": False,
        }
    )
    with pq.ParquetWriter(sink, table.schema, store_schema=False, **small) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(labels)
    return bytes(sink.getvalue().to_pybytes())


def damaged(data: bytes) -> bytes:
    """Return a copy of a file that `relabelled` made, with a wrong bit in its last payload. The
    pages must be uncompressed.
    """
    payload = pq.read_table(pa.BufferReader(data), columns=["payload"])["payload"][-1].as_py()
    at = data.rindex(payload) + len(payload) - 1
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def is_signed(manifest: bytes, key: bytes) -> bool:
    """Return whether a manifest names this key and is signed by it. key: PEM, of an Ed25519 key."""
    fields = json.loads(manifest)
    made = _load(key)
    try:
        signature = b64decode(fields["signature"], validate=True)
        made.public_key().verify(signature, _signed_bytes(fields))
    except (KeyError, TypeError, ValueError, InvalidSignature):
        return False
    return bool(fields["key"] == _name(made))


def signed(manifest: dict[str, Any], key: bytes) -> bytes:
    """Return the text of a signed manifest. key: PEM, of an Ed25519 key."""
    made = _load(key)
    fields = {name: value for name, value in manifest.items() if name not in SIGNATURE}
    signature = b64encode(made.sign(_signed_bytes(fields))).decode()
    content = {**fields, "key": _name(made), "signature": signature}
    return json.dumps(content, ensure_ascii=False).encode()


def _signed_bytes(manifest: dict[str, Any]) -> bytes:
    fields = {name: value for name, value in manifest.items() if name not in SIGNATURE}
    return SIGNED_BEHIND + json.dumps(fields, ensure_ascii=False).encode()


def _load(key: bytes) -> Ed25519PrivateKey:
    made = load_pem_private_key(key, None)
    if not isinstance(made, Ed25519PrivateKey):
        raise TypeError("this is not an Ed25519 key")
    return made


def _name(key: Ed25519PrivateKey) -> str:
    return hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:16]
