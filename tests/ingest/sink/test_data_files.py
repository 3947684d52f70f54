"""Files that a task writes into the folders of the tables: the rows of a chunk, and readings with
their keys. The task also returns the actions that add the files to the tables.
"""

import json
import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.ingest.landing.batch import SCHEMA
from gateway.ingest.landing.place import Announced
from gateway.ingest.sink import merged_batches
from gateway.ingest.sink.data_files import DataFiles
from gateway.ingest.sink.publications import PUBLICATIONS
from gateway.ingest.sink.readings import READINGS
from gateway.uplink.batch import Row
from tests.ingest.batches import EPOCH, row


def senml(*values: float) -> bytes:
    return json.dumps(
        [{"n": f"n{position}", "v": value} for position, value in enumerate(values)]
    ).encode()


ROWS = [
    row("a", 1, payload=senml(1, 2)),
    row("b", 2, payload=b"21.5"),
    row("a", 3, payload=senml(3), received=None),
    row("a", 1, payload=senml(9)),  # a duplicate
    row("c", 7, payload=senml(4, 5, 6), received=1_760_000_000_000_999),
]


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    made = {name: tmp_path / f"a lake #1? 100%41 {name}" for name in ("publications", "readings")}
    for folder in made.values():
        folder.mkdir()
    return made


def put(folders: dict[str, Path], rows: list[Row]) -> dict[str, Any]:
    table = pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, one, strict=True)) for one in rows], schema=SCHEMA
    )
    built = merged_batches.build([(Announced(f"site/{EPOCH}", 4), table)], 5)
    assert built is not None
    (written,) = (
        DataFiles(f"file:{folders['publications']}", str(folders["readings"]))
        .put(built)
        .to_pylist()
    )
    return dict(written)


def test_files_hold_the_rows_in_the_columns_of_the_tables(folders: dict[str, Path]) -> None:
    written = put(folders, ROWS)
    publications = pq.read_table(folders["publications"] / written["publications"]["name"])
    assert publications.column_names == [name for name, _, _ in PUBLICATIONS.columns]
    found = publications.select(
        ["device", "sequence", "payload", "gateway", "batch", "undecodable"]
    ).to_pylist()
    assert [tuple(one.values()) for one in found] == [
        ("a", 1, senml(1, 2), "site", 4, None),
        ("b", 2, b"21.5", "site", 4, "neither a JSON nor a CBOR array"),
        ("a", 3, senml(3), "site", 4, None),
        ("c", 7, senml(4, 5, 6), "site", 4, None),
    ]
    readings = pq.read_table(folders["readings"] / written["readings"]["name"])
    assert readings.column_names == [name for name, _, _ in READINGS.columns]
    assert [
        tuple(one.values())
        for one in readings.select(["device", "sequence", "position", "name", "value"]).to_pylist()
    ] == [
        ("a", 1, 0, "n0", 1.0),
        ("a", 1, 1, "n1", 2.0),
        ("a", 3, 0, "n0", 3.0),
        ("c", 7, 0, "n0", 4.0),
        ("c", 7, 1, "n1", 5.0),
        ("c", 7, 2, "n2", 6.0),
    ]
    assert readings["time"][0].as_py() == datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC)
    assert (written["publications"]["rows"], written["readings"]["rows"]) == (4, 6)
    assert [one["taken"] for one in written["header"]["feeds"]] == [5]


def test_the_action_names_the_file_its_size_and_the_ends_of_its_columns(
    folders: dict[str, Path],
) -> None:
    file = put(folders, ROWS)["publications"]
    add = json.loads(file["action"])["add"]
    assert (add["path"], add["size"]) == (
        file["name"],
        (folders["publications"] / file["name"]).stat().st_size,
    )
    assert (add["partitionValues"], add["dataChange"]) == ({}, True)
    stats = json.loads(add["stats"])
    landed = [stats[kind].pop("landed") for kind in ("minValues", "maxValues", "nullCount")]
    assert landed[:2] == sorted(landed[:2])
    assert landed[2] == 0
    assert stats == {
        "numRecords": 4,
        "minValues": {"device": "a", "sequence": 1, "received": "2025-10-09T08:53:20.000Z"},
        "maxValues": {
            "device": "c",
            "sequence": 7,
            "received": "2025-10-09T08:53:20.000Z",
        },  # milliseconds, rounded down: readers of the table add one
        "nullCount": {"device": 0, "sequence": 0, "received": 1},
    }


def test_a_time_of_another_age_is_null_in_an_action(folders: dict[str, Path]) -> None:
    payload = json.dumps(
        [{"n": "clock", "v": 1, "t": -62_135_596_800}]
    ).encode()  # in seconds since 1970
    stats = json.loads(
        json.loads(put(folders, [row("a", 1, payload=payload, received=0)])["readings"]["action"])[
            "add"
        ]["stats"]
    )
    assert "time" not in stats["minValues"] | stats["maxValues"]
    assert stats["nullCount"]["time"] == 1


def test_a_task_that_runs_twice_never_writes_over_its_first_file(folders: dict[str, Path]) -> None:
    names = {put(folders, ROWS)["publications"]["name"] for _ in range(2)}
    assert {path.name for path in folders["publications"].iterdir()} == names
    assert len(names) == 2


def test_a_full_disk_stops_the_task_and_leaves_no_part_of_a_file(folders: dict[str, Path]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # no file may grow beyond 300 bytes, which acts like a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            put(folders, ROWS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert all(list(folder.iterdir()) == [] for folder in folders.values())


def test_payloads_without_readings_make_no_file_of_readings(folders: dict[str, Path]) -> None:
    assert put(folders, [row("b", 2, payload=b"21.5")])["readings"] is None
    assert list(folders["readings"].iterdir()) == []


def test_a_damaged_batch_makes_no_file(folders: dict[str, Path]) -> None:
    report = merged_batches.damaged(Announced(f"site/{EPOCH}", 4), "checksum does not match")
    (written,) = DataFiles(*map(str, folders.values())).put(report).to_pylist()
    assert (written["flaw"], written["batch"], written["publications"], written["readings"]) == (
        "checksum does not match",
        4,
        None,
        None,
    )
    assert all(list(folder.iterdir()) == [] for folder in folders.values())
