"""Signed manifests, so that write access to the landing place does not give write access to the
table.

In: a gateway's data directory, and manifests. Out: their JSON with a signature (Ed25519, RFC 8032),
by a key that exists only in DATA/uplink.key. `onceway uplink key` prints the public half, which is
registered at the centre once (`onceway ingest trust`). The same manifest has the same signature
each time, so a batch that is landed again after a crash has the same bytes.
"""

import os
import secrets
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from gateway.errors import OncewayError
from gateway.system.accounts import give_to_uplink
from gateway.system.sync import sync
from gateway.uplink.manifest import Manifest, Signature, key_id

FILE = "uplink.key"
"""Name of the private key's file in the data directory: PKCS #8 in PEM, readable by the uplink's
account.
"""


class Signer:
    """Signs manifests. public: the public key, 32 bytes in Base64."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes_raw()
        self.public = b64encode(raw).decode()
        self._id = key_id(raw)

    def publish(self, manifest: Manifest) -> bytes:
        """Return the signed manifest as bytes, as it is published."""
        signature = self._key.sign(manifest.signed_bytes())
        return manifest.to_json(Signature(self._id, b64encode(signature).decode()))


def load_or_make(data: Path) -> Signer:
    """Return the gateway's key; the first call creates it. Raises OncewayError if it cannot be read
    or created.
    """
    path = data / FILE
    try:
        if not path.exists():
            _make(path)
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise OncewayError(
            f"the key that signs batches cannot be read or created ({error.strerror})",
            str(path),
            "`sudo onceway uplink key` creates it if there is none.",
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _damaged(path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _damaged(path)
    return Signer(key)


def _damaged(path: Path) -> OncewayError:
    return OncewayError(
        "this is not a key that signs batches",
        str(path),
        "Restore the key from a backup. Or delete the file: the uplink then makes a new key. Give"
        " this key to the centre (`onceway uplink key`).",
    )


def _make(path: Path) -> None:
    """Create the key's file atomically, and sync it to the disk. If another process creates the
    file first, that file stays. The file belongs to the uplink's account, even if root has created
    it.
    """
    made = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            give_to_uplink(file.fileno(), path.parent)
            file.write(made)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(hidden, path)
    finally:
        hidden.unlink()
    sync(path.parent)
