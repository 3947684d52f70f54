"""The device registry as one encrypted file. In: the registry's rows and a passphrase. Out: the
encrypted bytes. With the same passphrase, the bytes give the rows again.

    file = "OWREG2" salt:16 nonce:12 ciphertext sha256:32    AES-256-GCM over the rows as JSON; the
                                                             first 34 bytes are authenticated too

The key comes from the passphrase by scrypt (RFC 7914; n = 2^17, r = 8, p = 1: 128 MiB, about half a
second on a Raspberry Pi 5). The SHA-256 over the bytes before it distinguishes a damaged file from
a wrong passphrase; AES-GCM detects deliberate changes.
"""

import hashlib
import json
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from gateway.errors import OncewayError
from provisioning.registry import Rows
from provisioning.schema import VERSION

_MAGIC = b"OWREG2"
_OLDEST = 2
"""Schema version of the oldest backups that `Registry.load` accepts."""
_SALT, _NONCE, _SUM = 16, 12, 32
_HEADER = len(_MAGIC) + _SALT + _NONCE


def seal(rows: Rows, passphrase: str) -> bytes:
    """Encrypt the rows, keys included."""
    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    header = _MAGIC + salt + nonce
    text = json.dumps({"schema": VERSION, "rows": rows}, default=bytes.hex).encode()
    sealed = header + AESGCM(_derive(passphrase, salt)).encrypt(nonce, text, header)
    return sealed + hashlib.sha256(sealed).digest()


def open_sealed(data: bytes, passphrase: str) -> Rows:
    """Decrypt the rows. Raises OncewayError if the data is not a backup, is damaged, or is of
    another version, or if the passphrase is wrong.
    """
    if not data.startswith(_MAGIC):
        raise OncewayError("this is not a backup of a device registry")
    sealed, checksum = data[:-_SUM], data[-_SUM:]
    if len(sealed) < _HEADER or hashlib.sha256(sealed).digest() != checksum:
        raise OncewayError(
            "the backup is damaged: its checksum does not fit",
            hint="Use another copy of the backup",
        )
    header = sealed[:_HEADER]
    salt, nonce = header[len(_MAGIC) : -_NONCE], header[-_NONCE:]
    try:
        content = json.loads(
            AESGCM(_derive(passphrase, salt)).decrypt(nonce, sealed[_HEADER:], header)
        )
    except InvalidTag:
        raise OncewayError("the passphrase is wrong") from None
    if not _OLDEST <= content["schema"] <= VERSION:
        raise OncewayError(
            f"the backup was made by another version of Onceway (schema {content['schema']}, this"
            f" one knows {VERSION})"
        )
    rows: Rows = content["rows"]
    for table in rows.values():
        for row in table:
            row["key"] = bytes.fromhex(row["key"]) if row["key"] is not None else None
    return rows


def _derive(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**17, r=8, p=1).derive(passphrase.encode())
