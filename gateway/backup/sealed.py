"""A stream of bytes, encrypted by a passphrase. In: any number of bytes. Out: the same bytes, piece
by piece; the reader detects bytes that were altered, left out or cut off.

    file  = "OWBACK1" salt:16 prefix:7 check:16 piece*
    piece = AES-256-GCM of 65,536 bytes, the last one of 0 to 65,536; nonce = prefix count:4 last:1

This is the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizár: Online Authenticated
Encryption and its Nonce-Reuse Misuse-Resistance, CRYPTO 2015). Key and check come from the
passphrase by scrypt (RFC 7914; n = 2^17, r = 8, p = 1: 128 MiB, about half a second on a Raspberry
Pi 5); the check distinguishes a wrong passphrase from a damaged
file.
"""

import hmac
import io
import os
import struct
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from gateway.errors import OncewayError
from gateway.store.schema import StoreError

_MAGIC = b"OWBACK1"
_SALT, _PREFIX, _CHECK, _KEY = 16, 7, 16, 32
_HEADER = len(_MAGIC) + _SALT + _PREFIX + _CHECK
_PIECE, _TAG = 1 << 16, 16


class BackupError(OncewayError):
    """Error for a backup that is missing, damaged or of another version."""

    exit_code = StoreError.exit_code


class SealedWriter(io.RawIOBase):
    """The writer of an encrypted stream. Call `finish` at the end; without it the stream cannot be
    read. `file` stays open.
    """

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        salt, self._prefix = os.urandom(_SALT), os.urandom(_PREFIX)
        key, check = _derive(passphrase, salt)
        self._header = _MAGIC + salt + self._prefix + check
        self._file, self._key, self._count = file, AESGCM(key), 0
        self._waiting = bytearray()
        file.write(self._header)

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._waiting += data
        while len(self._waiting) > _PIECE:
            self._seal(bytes(self._waiting[:_PIECE]), last=False)
            del self._waiting[:_PIECE]
        return len(data)

    def finish(self) -> None:
        """Write the last piece."""
        self._seal(bytes(self._waiting), last=True)

    def _seal(self, piece: bytes, *, last: bool) -> None:
        nonce = _nonce(self._prefix, self._count, last)
        self._file.write(self._key.encrypt(nonce, piece, self._header))
        self._count += 1


class SealedReader(io.RawIOBase):
    """The reader of an encrypted stream. Raises OncewayError for another kind of file, a damaged or
    truncated stream, or a wrong passphrase.
    """

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        self._header = file.read(_HEADER)
        if not self._header.startswith(_MAGIC) or len(self._header) < _HEADER:
            raise BackupError("this is not a backup of a gateway")
        salt = self._header[len(_MAGIC) :][:_SALT]
        self._prefix = self._header[len(_MAGIC) + _SALT :][:_PREFIX]
        key, check = _derive(passphrase, salt)
        if not hmac.compare_digest(check, self._header[-_CHECK:]):
            raise OncewayError("the passphrase is wrong")
        self._file, self._key, self._count = file, AESGCM(key), 0
        self._ahead = file.read(_PIECE + _TAG)
        if not self._ahead:
            raise _damaged()
        self._piece = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        if not self._piece and self._ahead:
            self._piece = self._next()
        copied = self._piece[: len(buffer)]
        buffer[: len(copied)] = copied
        self._piece = self._piece[len(copied) :]
        return len(copied)

    def _next(self) -> bytes:
        sealed, self._ahead = self._ahead, self._file.read(_PIECE + _TAG)
        nonce = _nonce(self._prefix, self._count, last=not self._ahead)
        self._count += 1
        try:
            return self._key.decrypt(nonce, sealed, self._header)
        except InvalidTag:
            raise _damaged() from None


def _damaged() -> BackupError:
    return BackupError("the backup is damaged or incomplete", hint="Use another copy of the backup")


def _derive(passphrase: str, salt: bytes) -> tuple[bytes, bytes]:
    both = Scrypt(salt=salt, length=_KEY + _CHECK, n=2**17, r=8, p=1).derive(passphrase.encode())
    return both[:_KEY], both[_KEY:]


def _nonce(prefix: bytes, count: int, last: bool) -> bytes:
    return prefix + struct.pack(">I?", count, last)
