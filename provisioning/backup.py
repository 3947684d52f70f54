"""A registry as one encrypted file. In: devices and a passphrase. Out: bytes that are useless without it, and the devices again.

    file = "OWREG1" salt:16 nonce:12 ciphertext      AES-256-GCM over the devices as JSON; the first 34 bytes are authenticated too

The key comes from the passphrase by scrypt (RFC 7914; n = 2^17, r = 8, p = 1: 128 MiB, about half a second on a Raspberry Pi 5).
"""

import json
import os
from dataclasses import asdict

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from gateway.errors import OncewayError
from provisioning.registry import Device

_MAGIC = b"OWREG1"
_SALT, _NONCE = 16, 12
_HEADER = len(_MAGIC) + _SALT + _NONCE


def seal(devices: list[Device], passphrase: str) -> bytes:
    """Encrypt devices, keys included."""
    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    rows = [{**asdict(device), "key": device.key.hex()} for device in devices]
    header = _MAGIC + salt + nonce
    return header + AESGCM(_derive(passphrase, salt)).encrypt(nonce, json.dumps(rows).encode(), header)


def open_sealed(data: bytes, passphrase: str) -> list[Device]:
    """Decrypt devices. Raises OncewayError if this is no backup, was altered, or the passphrase is wrong."""
    if len(data) < _HEADER or not data.startswith(_MAGIC):
        raise OncewayError("this is not a backup of a device registry")
    header = data[:_HEADER]
    salt, nonce = header[len(_MAGIC) : -_NONCE], header[-_NONCE:]
    try:
        rows = json.loads(AESGCM(_derive(passphrase, salt)).decrypt(nonce, data[_HEADER:], header))
    except InvalidTag:
        raise OncewayError("the passphrase is wrong, or the file was altered") from None
    return [Device(**{**row, "key": bytes.fromhex(row["key"])}) for row in rows]


def _derive(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**17, r=8, p=1).derive(passphrase.encode())
