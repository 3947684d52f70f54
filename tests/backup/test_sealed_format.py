"""A sealed backup has the documented format, so that each later version can read it."""

import hashlib
import io
import struct

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.backup.sealed import SealedReader, SealedWriter

PIECE, TAG = 65_536, 16


def opened(file: bytes, passphrase: str) -> list[bytes]:
    """Decrypt a backup by the documented format, without the product's code. Return its pieces."""
    assert file[:7] == b"OWBACK1"
    salt, prefix, check = file[7:23], file[23:30], file[30:46]
    both = hashlib.scrypt(
        passphrase.encode(), salt=salt, n=1 << 17, r=8, p=1, maxmem=1 << 28, dklen=48
    )
    assert both[32:] == check
    sealed = [file[at : at + PIECE + TAG] for at in range(46, len(file), PIECE + TAG)]
    cipher = AESGCM(both[:32])
    return [
        cipher.decrypt(prefix + struct.pack(">I?", n, n == len(sealed) - 1), piece, file[:46])
        for n, piece in enumerate(sealed)
    ]


@pytest.mark.parametrize("sizes", [[PIECE], [PIECE, PIECE, 5]])
def test_sealed_file_has_the_documented_format(sizes: list[int]) -> None:
    data = bytes(range(256)) * (sum(sizes) // 256 + 1)
    data = data[: sum(sizes)]
    file = io.BytesIO()
    writer = SealedWriter(file, "correct horse")
    assert writer.writable()
    assert writer.write(data) == len(data)
    writer.finish()
    pieces = opened(file.getvalue(), "correct horse")
    assert ([len(piece) for piece in pieces], b"".join(pieces)) == (sizes, data)
    file.seek(0)
    reader = SealedReader(file, "correct horse")
    assert reader.readable()
    assert reader.read() == data
