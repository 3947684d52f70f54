"""Batches as files: rows are the same after writing and reading, and the files are as small as
promised.
"""

import io
import os
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.ingest.landing.batch import SCHEMA as READ
from gateway.uplink.batch import SCHEMA, Manifest, NotABatch, Origin, decode, encode
from gateway.uplink.keys import incarnations, pack
from tests.uplink.readings import sensor_rows

ORIGIN = Origin("site-ü", "00c0ffee")
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
rows = st.lists(
    st.tuples(
        text,
        int64,
        int64,
        st.none() | text,
        text,
        st.binary(max_size=60),
        st.none() | int64,
        int64,
        int64,
        int64,
    ),
    min_size=1,
    max_size=60,
)


@given(rows)
@settings(max_examples=30, deadline=None)
def test_rows_come_back_as_they_were(rows):
    data = encode(rows, ORIGIN, 17)
    assert decode(data) == (
        rows,
        {
            "onceway.schema": "1",
            "onceway.gateway": "site-ü",
            "onceway.epoch": "00c0ffee",
            "onceway.number": "17",
        },
    )
    assert encode(rows, ORIGIN, 17) == data


def damage_has_one_name(choice):
    """Reading a file starts a process, so `make test` tries only a few examples, and the soak test
    many.
    """
    data = encode(sensor_rows(10), ORIGIN, 1)
    at = choice.draw(st.integers(0, len(data) - 1))
    for damaged in (
        data[:at],
        data[:at] + bytes([data[at] ^ choice.draw(st.integers(1, 255))]) + data[at + 1 :],
    ):
        with suppress(NotABatch):
            decode(damaged)


test_damage_has_one_name = settings(max_examples=15, deadline=None)(
    given(st.data())(damage_has_one_name)
)
test_damage_at_many_places_has_one_name = pytest.mark.soak(
    settings(max_examples=1000, deadline=None)(given(st.data())(damage_has_one_name))
)


def test_batch_has_the_columns_that_the_ingest_reads():
    assert pa.schema(SCHEMA) == READ


def test_the_file_says_its_types_without_arrow_s_own_schema():
    file = pq.ParquetFile(pa.BufferReader(encode(sensor_rows(10), ORIGIN, 1)))
    assert file.schema_arrow.remove_metadata() == READ
    column = {
        file.metadata.row_group(0).column(n).path_in_schema: file.metadata.row_group(0).column(n)
        for n in range(len(READ))
    }
    assert {c.compression for c in column.values()} == {"ZSTD"}
    assert "DELTA_BINARY_PACKED" in column["spool_id"].encodings
    assert not any(c.is_stats_set or c.has_column_index for c in column.values())
    assert [name for name, c in column.items() if c.has_dictionary_page] == [
        "device",
        "client",
        "topic",
    ]


def test_manifest_names_and_content():
    manifest = Manifest(ORIGIN, 12, 500, 10211, "ab" * 32)
    assert manifest.name == "site-ü/00c0ffee/000000000012.json"
    assert manifest.data_name == "site-ü/00c0ffee/000000000012.parquet"
    assert manifest.to_json().decode() == (
        '{"schema": 1, "gateway": "site-ü", "epoch": "00c0ffee", "number": 12, "rows": 500,'
        ' "bytes": 10211, "sha256": "' + "ab" * 32 + '"}'
    )


def test_bytes_per_reading_keep_their_promise():
    """Limits of the file size: 20 bytes per reading in a batch of 500, and 45 bytes in a batch of
    50. A payload of 24 random bytes cannot be compressed. With such payloads, a reading may take 12
    bytes in addition to its payload.
    """
    assert len(encode(sensor_rows(500), ORIGIN, 1)) / 500 <= 20
    assert len(encode(sensor_rows(50, devices=5), ORIGIN, 1)) / 50 <= 45
    assert len(encode(sensor_rows(500, payload=lambda: os.urandom(24)), ORIGIN, 1)) / 500 - 24 <= 12


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 30)), max_size=80)
)
@settings(max_examples=80, deadline=None)
def test_packed_keys_answer_for_exactly_the_keys_in_a_batch(keys):
    blob = pack(keys)
    for device in "abc":
        for sequence in range(-1, 32):
            assert sorted(incarnations(blob, device, sequence)) == sorted(
                {k[1] for k in keys if (k[0], k[2]) == (device, sequence)}
            )


def test_a_batch_is_as_small_as_pyarrow_makes_it():
    rows = sensor_rows(500)
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        READ,
        compression="zstd",
        compression_level=9,
        use_dictionary=["device", "client", "topic"],
        column_encoding={f.name: "DELTA_BINARY_PACKED" for f in READ if f.type == pa.int64()},
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(pa.table(list(zip(*rows, strict=True)), schema=READ))
    assert len(encode(rows, ORIGIN, 1)) <= buffer.tell()


@pytest.mark.parametrize("change", ["drop", "rename"])
def test_parquet_file_with_other_columns_is_not_a_batch(change):
    """Another program has put it there under the name of a batch."""
    table = pq.read_table(pa.BufferReader(encode(sensor_rows(5), ORIGIN, 1)))
    other = (
        table.drop_columns(["topic"])
        if change == "drop"
        else table.rename_columns(["kind" if n == "topic" else n for n in table.column_names])
    )
    buffer = io.BytesIO()
    pq.write_table(other, buffer)
    with pytest.raises(NotABatch, match=r"not those of a batch \('topic'\)"):
        decode(buffer.getvalue())
