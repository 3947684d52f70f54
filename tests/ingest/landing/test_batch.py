"""A batch is used completely or not at all."""

import json
import struct
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.ingest.landing import batch
from gateway.ingest.landing.place import Announced, Landing, parse_manifest
from gateway.uplink.batch import sha256
from tests.ingest.batches import EPOCH, land, row

FEED = f"site/{EPOCH}"


def landed(tmp_path: Path, rows: int = 20) -> tuple[Announced, bytes]:
    land(tmp_path, "site", 1, [row("dev", number) for number in range(1, rows + 1)])
    landing = Landing(str(tmp_path))
    announced = landing.manifest(FEED, 1)
    assert announced is not None
    return announced, landing.batch(announced)


def reason(data: bytes, announced: Announced) -> str:
    with pytest.raises(batch.Damaged) as caught:
        batch.check(data, announced)
    return str(caught.value)


def test_a_whole_batch_gives_its_rows(tmp_path: Path) -> None:
    announced, data = landed(tmp_path)
    table = batch.check(data, announced)
    assert table["sequence"].to_pylist() == list(range(1, 21))


def test_a_file_cut_at_any_place_gives_no_row(tmp_path: Path) -> None:
    announced, data = landed(tmp_path, rows=200)
    for size in range(0, len(data), 97):
        assert reason(data[:size], announced) == f"{size} bytes instead of {len(data)}"


def test_a_flipped_bit_anywhere_gives_no_row(tmp_path: Path) -> None:
    announced, data = landed(tmp_path)
    for position in range(0, len(data), 53):
        altered = data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]
        assert reason(altered, announced) == "checksum does not match"


def test_a_file_that_is_longer_than_announced(tmp_path: Path) -> None:
    announced, data = landed(tmp_path)
    assert reason(data + b"x", announced) == f"more than {len(data)} bytes instead of {len(data)}"


def forged(data: bytes, **changes: object) -> tuple[bytes, Announced]:
    """Return the file of a batch, and a manifest that matches its size and checksum. changes: other
    fields of the manifest.
    """
    fields = {
        "feed": FEED,
        "number": 1,
        "rows": 20,
        "bytes": len(data),
        "sha256": sha256(data),
    } | changes
    return data, Announced(**fields)  # type: ignore[arg-type]


def rewritten(
    data: bytes, change: "pa.Table | None" = None, labels: dict[str, str] | None = None
) -> bytes:
    table = pq.read_table(pa.BufferReader(data)) if change is None else change
    kept = {
        key.decode(): value.decode()
        for key, value in pq.read_metadata(pa.BufferReader(data)).metadata.items()
    }
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(kept | (labels or {})), sink)
    return bytes(sink.getvalue())


def received(table: pa.Table, first: int) -> pa.Table:
    """Return the table with another time of receipt in its first row."""
    times = pa.array([first, *table["received"].to_pylist()[1:]], pa.int64())
    return table.set_column(table.column_names.index("received"), "received", times)


def test_damage_despite_a_matching_checksum(tmp_path: Path) -> None:
    _, data = landed(tmp_path)
    table = pq.read_table(pa.BufferReader(data))
    nulls = pa.array([None] * 20, pa.string())
    cases = {
        "20 rows instead of 19": forged(data, rows=19),
        "the file belongs to another batch": forged(data, number=2),
        "unknown schema version 2": forged(rewritten(data, labels={"onceway.schema": "2"})),
        "null in column device": forged(rewritten(data, table.set_column(0, "device", nulls))),
        "columns differ from the schema: extra": forged(
            rewritten(data, table.append_column("extra", nulls))
        ),
        "columns differ from the schema: boot": forged(
            rewritten(data, table.drop_columns(["boot"]))
        ),
        "an impossible time of receipt": forged(rewritten(data, received(table, -1))),
        "negative sequence": forged(
            rewritten(data, table.set_column(2, "sequence", pa.array(range(-1, 19), pa.int64())))
        ),
    }
    for expected, (altered, announced) in cases.items():
        assert reason(altered, announced) == expected
    assert (
        reason(*forged(rewritten(data, received(table, 2**62)))) == "an impossible time of receipt"
    )
    letters = pa.StringArray.from_buffers(
        20, pa.py_buffer(struct.pack("21i", *range(21))), pa.py_buffer(b"\xff" * 20)
    )
    assert "Invalid UTF8" in reason(
        *forged(rewritten(data, table.set_column(0, "device", letters)))
    )
    assert reason(*forged(b"PAR1 no parquet PAR1")).startswith("not readable as Parquet")


def test_a_time_of_receipt_after_2099_counts_as_unknown(tmp_path: Path) -> None:
    """pandas could not read the whole table because of one such time."""
    _, data = landed(tmp_path)
    table = pq.read_table(pa.BufferReader(data))
    late = int(datetime(2300, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    data, announced = forged(rewritten(data, received(table, late)))
    times = batch.check(data, announced)["received"].to_pylist()
    assert times == [None, *table["received"].to_pylist()[1:]]


@pytest.mark.parametrize("year", [1901, 2300, 9999, 20_000])
def test_an_impossible_time_of_a_file_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, year: int
) -> None:
    announced, _ = landed(tmp_path)
    landing = Landing(str(tmp_path))
    monkeypatch.setattr(landing, "modified", lambda *_: (year - 1970) * 365.25 * 86_400)
    assert landing.with_time(announced).landed is None


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ({"schema": 2}, "unknown schema version 2"),
        ({"number": 2}, "the manifest names another batch"),
        ({"gateway": "other"}, "the manifest names another batch"),
        ({"rows": -1}, "the manifest has impossible values"),
        ({"rows": True}, "the manifest has impossible values"),
        ({"bytes": 10**12}, "the manifest has impossible values"),
        ({"sha256": "../../etc"}, "the manifest has impossible values"),
        ({"sha256": None}, "unreadable manifest: TypeError"),
    ],
)
def test_a_manifest_that_does_not_fit_says_why(
    tmp_path: Path, change: dict[str, object], flaw: str
) -> None:
    fields = json.loads(land(tmp_path, "site", 1, [row("dev", 1)]).to_json()) | change
    assert parse_manifest(json.dumps(fields).encode(), FEED, 1).flaw == flaw


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 4000])
def test_a_manifest_that_is_no_json_object(text: bytes) -> None:
    flaw = parse_manifest(text, FEED, 1).flaw
    assert flaw is not None
    assert flaw.startswith("unreadable manifest")


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, data = landed(tmp_path)
    monkeypatch.setattr(batch, "UNPACKED_LIMIT", 100)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_: pytest.fail("the file was read"))
    assert reason(*forged(data)) == "unpacks to more than 100 bytes"
