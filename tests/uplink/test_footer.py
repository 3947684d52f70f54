"""The footer of a batch is read and written without loss, whatever fields arro3 puts into it."""

from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.uplink import footer

TRUE, FALSE, BYTE, BINARY, LIST, STRUCT = 1, 2, 3, 8, 9, 12
INTEGERS = st.sampled_from((4, 5, 6))
PLAIN: st.SearchStrategy[tuple[int, Any]] = st.one_of(
    st.tuples(st.sampled_from((TRUE, FALSE)), st.none()),
    st.tuples(st.just(BYTE), st.binary(min_size=1, max_size=1)),
    st.tuples(st.just(BINARY), st.binary(max_size=300)),
    st.tuples(INTEGERS, st.integers(-(1 << 63), (1 << 63) - 1)),
)
# an item of a list of truth values has a byte of its own, which a footer does not have
ITEMS = st.one_of(
    st.lists(st.tuples(st.just(BINARY), st.binary(max_size=3)), min_size=1, max_size=40),
    st.lists(st.tuples(st.just(5), st.integers(-3, 1 << 31)), min_size=1, max_size=40),
)


def struct_of(values: st.SearchStrategy[tuple[int, Any]]) -> st.SearchStrategy[dict[int, Any]]:
    return st.dictionaries(st.integers(1, 0x7FFF), values, max_size=8)


VALUES = st.recursive(
    PLAIN | st.tuples(st.just(LIST), ITEMS),
    lambda inner: st.one_of(
        st.tuples(st.just(STRUCT), struct_of(inner)),
        st.tuples(
            st.just(LIST),
            st.lists(st.tuples(st.just(STRUCT), struct_of(inner)), max_size=20),
        ),
    ),
    max_leaves=12,
)


@given(struct_of(VALUES))
def test_each_structure_reads_back_as_it_was_written(fields: dict[int, Any]) -> None:
    out = bytearray()
    footer._write(out, fields)
    source = BytesIO(bytes(out) + b"after it")
    assert footer._read(source) == fields
    assert source.read() == b"after it"


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(ValueError, match="unknown type 7"):
        footer._read(BytesIO(b"\x17\x00"))
