"""The identity page: it is read as it was written, and a damaged page is never taken for an
identity.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import OncewayError
from provisioning.identity import SIZE, Identity

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,22}", fullmatch=True)
identities = st.builds(Identity, names, st.binary(min_size=16, max_size=16))


@given(identities)
def test_a_page_holds_what_was_written(identity: Identity) -> None:
    page = identity.to_bytes().ljust(128, b"\xff")
    assert Identity.from_bytes(page) == identity


@given(identities, st.integers(0, SIZE * 8 - 1))
def test_a_damaged_page_is_no_identity(identity: Identity, bit: int) -> None:
    page = bytearray(identity.to_bytes())
    page[bit // 8] ^= 1 << bit % 8
    assert Identity.from_bytes(bytes(page)) is None


@given(st.binary(max_size=128))
def test_any_bytes_are_read_without_an_exception(data: bytes) -> None:
    assert Identity.from_bytes(data) is None


def test_the_layout_is_the_one_in_the_firmware_readme() -> None:
    page = Identity("roof-1", bytes(range(16))).to_bytes()
    assert page[:-2] == b"OWID\x01\x06roof-1" + bytes(17) + bytes(range(16))
    assert page[-2:].hex() == "30f4"


@pytest.mark.parametrize("name", ["", "a" * 24, "-a", "a/b", "a+", "#", "ä", "a b"])
def test_a_name_that_no_topic_could_hold_is_refused(name: str) -> None:
    with pytest.raises(OncewayError, match="is not a valid device name"):
        Identity.create(name)


def test_a_key_shows_in_no_log() -> None:
    identity = Identity.create("roof-1")
    assert identity.key.hex() not in repr(identity)
    assert repr(identity.key) not in repr(identity)
