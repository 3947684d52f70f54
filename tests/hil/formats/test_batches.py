"""Batches of the rig's own writer, read by the uplink's reader."""

import hashlib
import json
from pathlib import Path

import cbor2
import pytest

from gateway.uplink.batch import Manifest, Origin, decode, encode
from gateway.uplink.signing import load_or_make
from hil.faults.landing_place import Copy, LandingPlace
from hil.formats.batches import is_signed, relabelled
from hil.judge.senml import decode as records

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


@pytest.mark.parametrize(
    ("harm", "named"), [("unsigned", False), ("forged", True), ("altered", True)]
)
def test_a_forged_copy_has_other_payloads_and_no_signature_of_the_gateway(
    landing: Path, tmp_path: Path, harm: Copy, named: bool
) -> None:
    place = LandingPlace(landing, tmp_path / "mount", tmp_path / "uplink.key")
    place.repeat("site/00000001", 3, "0000beef", harm)
    copy = landing / "site/0000beef/000000000001.json"
    assert ("signature" in json.loads(copy.read_bytes())) is named
    assert not is_signed(copy.read_bytes(), (tmp_path / "uplink.key").read_bytes())
    rows, _ = decode(copy.with_suffix(".parquet").read_bytes())
    assert [row[5] for row in rows] == [row[5] + b"?" for row in ROWS]


def test_a_reworded_copy_differs_in_unit_name_or_value(landing: Path, tmp_path: Path) -> None:
    reading = cbor2.dumps([{-2: "uno-1:", 0: "adc0", 1: "V", 2: 1.5}])
    origin = Origin("site", "00000001")
    data = encode([(*ROWS[0][:5], reading, *ROWS[0][6:])] * 3 + ROWS, origin, 3)
    (landing / "site/00000001/000000000003.parquet").write_bytes(data)
    place = LandingPlace(landing, tmp_path / "mount", tmp_path / "uplink.key")
    place.repeat("site/00000001", 3, "0000beef", "reworded", under=2)
    place.repeat("site/00000001", 3, "0000beef", "reworded")
    first, second = (
        [row[5] for row in decode((landing / f"site/0000beef/{n:012d}.parquet").read_bytes())[0]]
        for n in (1, 2)
    )
    assert second == [reading + b"!!"] * 3 + [row[5] + b"!!" for row in ROWS]
    assert first[3:] == [row[5] + b"!" for row in ROWS]
    changed = [records(payload)[0] for payload in first[:3]]
    kinds = [(one.name, one.unit) for one in changed]
    assert kinds == [("uno-1:adc0", "A"), ("uno-1:adc1", "V"), ("uno-1:adc0", "V")]
    assert [one.value == 1.5 for one in changed] == [True, True, False]
