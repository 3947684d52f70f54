"""Batches of the rig's own writer, read by the uplink's reader."""

import hashlib
from pathlib import Path

import pytest

from gateway.uplink.batch import Manifest, Origin, decode, encode
from gateway.uplink.signing import load_or_make
from hil.faults.landing_place import LandingPlace
from hil.formats.batches import relabelled

ROWS = [
    ("uno-1", 0xC0FFEE, 1, "uno-1", "sensors/a", b"\x81\xa0", 1_700_000_000_000_000, 1, 5, 7),
    ("uno-2", 0xBEEF, 2, None, "sensors/uno-2/adc0", b"", None, 2, 6, 8),
]


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """Return a landing place with one batch."""
    origin = Origin("site", "00000001")
    data = encode(ROWS, origin, 3)
    manifest = Manifest(origin, 3, len(ROWS), len(data), hashlib.sha256(data).hexdigest())
    folder = tmp_path / "landing"
    (folder / manifest.name).parent.mkdir(parents=True)
    (folder / manifest.data_name).write_bytes(data)
    (folder / manifest.name).write_bytes(load_or_make(tmp_path).publish(manifest))
    return folder


def test_a_copy_has_the_same_rows_under_another_epoch(landing: Path, tmp_path: Path) -> None:
    place = LandingPlace(landing, tmp_path / "mount", tmp_path / "uplink.key")
    assert place.repeat("site/00000001", 3, "0000beef") == len(ROWS)
    copy = landing / "site/0000beef/000000000001.parquet"
    data = copy.read_bytes()
    sums = (len(ROWS), len(data), hashlib.sha256(data).hexdigest())
    expected = Manifest(Origin("site", "0000beef"), 1, *sums)
    assert copy.with_suffix(".json").read_bytes() == load_or_make(tmp_path).publish(expected)
    rows, labels = decode(data)
    assert rows == ROWS
    assert labels == {
        "onceway.schema": "1",
        "onceway.gateway": "site",
        "onceway.epoch": "0000beef",
        "onceway.number": "1",
    }


def test_a_clone_takes_the_next_free_number_with_other_bytes(landing: Path, tmp_path: Path) -> None:
    place = LandingPlace(landing, tmp_path / "mount", tmp_path / "uplink.key")
    folder = landing / "site/00000001"
    (folder / "000000000004.parquet").write_bytes(b"the uplink has put these")
    number, content = place.take_number("site/00000001", 3)
    assert number == 5
    assert (folder / "000000000004.parquet").read_bytes() == b"the uplink has put these"
    data = (folder / "000000000005.parquet").read_bytes()
    assert data != (folder / "000000000003.parquet").read_bytes()
    assert decode(data)[0] == ROWS
    sums = (len(ROWS), len(data), content)
    expected = Manifest(Origin("site", "00000001"), 5, *sums)
    assert (folder / "000000000005.json").read_bytes() == load_or_make(tmp_path).publish(expected)


def test_a_damaged_copy_differs_by_one_byte(landing: Path, tmp_path: Path) -> None:
    place = LandingPlace(landing, tmp_path / "mount", tmp_path / "uplink.key")
    source = landing / "site/00000001/000000000003.parquet"
    files = source.read_bytes(), source.with_suffix(".json").read_bytes()
    key = (tmp_path / "uplink.key").read_bytes()
    whole, _ = relabelled(*files, "0000beef", 1, key, plain=True)
    place.repeat("site/00000001", 3, "0000beef", copy="damaged")
    harmed = (landing / "site/0000beef/000000000001.parquet").read_bytes()
    assert sum(one != other for one, other in zip(harmed, whole, strict=True)) == 1
