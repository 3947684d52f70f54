"""A backup cannot be read without its passphrase, and every change or truncation of it is
noticed.
"""

import hashlib
import io
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backup import sealed
from gateway.backup.sealed import SealedReader, SealedWriter
from gateway.errors import OncewayError

PIECE = 64


def derive(passphrase: str, salt: bytes) -> tuple[bytes, bytes]:
    both = hashlib.sha384(passphrase.encode() + salt).digest()
    return both[:32], both[32:]


@pytest.fixture(autouse=True)
def quick():
    """Make the tests fast: backups have small pieces and a cheap key derivation."""
    with (
        patch.object(sealed, "_PIECE", PIECE),
        patch.object(sealed, "_derive", derive),
    ):
        yield


def seal(data: bytes, *cuts: int) -> bytes:
    file = io.BytesIO()
    writer = SealedWriter(file, "correct horse")
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        writer.write(data[begin:end])
    writer.finish()
    return file.getvalue()


def unseal(file: bytes, passphrase: str = "correct horse") -> bytes:
    return SealedReader(io.BytesIO(file), passphrase).read()


@given(st.binary(max_size=5 * PIECE), st.data())
def test_sealed_data_are_read_back_for_any_write_sizes(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=4)))
    assert unseal(seal(data, *cuts)) == data


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
def test_a_file_cut_anywhere_is_refused(size: int) -> None:
    whole = seal(bytes(size))
    for end in range(len(whole)):
        with pytest.raises(OncewayError, match=r"not a backup|damaged or incomplete"):
            unseal(whole[:end])


def test_a_file_altered_anywhere_is_refused() -> None:
    whole = seal(bytes(2 * PIECE + 9))
    for place in range(len(whole)):
        with pytest.raises(OncewayError, match=r"not a backup|wrong|damaged"):
            unseal(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])


def test_pieces_in_another_order_are_refused() -> None:
    whole = seal(bytes(3 * PIECE))
    begin, size = len(whole) - 3 * (PIECE + 16), PIECE + 16
    pieces = [whole[begin + i * size : begin + (i + 1) * size] for i in range(3)]
    with pytest.raises(OncewayError, match="damaged"):
        unseal(whole[:begin] + pieces[1] + pieces[0] + pieces[2])


def test_wrong_passphrase_is_reported() -> None:
    with pytest.raises(OncewayError, match="the passphrase is wrong"):
        unseal(seal(b"text"), "correct hors")
