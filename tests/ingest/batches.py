"""Batches for tests. The uplink's own encoder writes them."""

from collections.abc import Iterable
from pathlib import Path

from gateway.uplink.batch import Manifest, Origin, Row, encode, sha256
from gateway.uplink.signing import Signer

EPOCH = "0a1b2c3d"


def row(
    device: str,
    sequence: int,
    incarnation: int = 7,
    payload: bytes = b"\x81\xa2\x00\x61t\x02\x15",
    received: int | None = 1_760_000_000_000_000,
) -> Row:
    return (
        device,
        incarnation,
        sequence,
        None,
        f"sensors/{device}",
        payload,
        received,
        3,
        1_000,
        sequence,
    )


def land(
    landing: Path,
    gateway: str,
    number: int,
    rows: Iterable[Row],
    epoch: str = EPOCH,
    signer: Signer | None = None,
) -> Manifest:
    """Land a batch as the uplink does. Without a signer, the manifest is unsigned, as from older
    versions.
    """
    origin, held = Origin(gateway, epoch), list(rows)
    data = encode(held, origin, number)
    manifest = Manifest(origin, number, len(held), len(data), sha256(data))
    (landing / origin.folder).mkdir(parents=True, exist_ok=True)
    (landing / manifest.data_name).write_bytes(data)
    (landing / manifest.name).write_bytes(
        signer.publish(manifest) if signer else manifest.to_json()
    )
    return manifest
