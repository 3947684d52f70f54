"""Tables whose answer to a filter, a version or a count differs from their data files."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from hil.observe.asked import differences
from tests.hil.sabotage import ROOT, catalogue, edited

MOMENT = datetime(2026, 11, 22, 12, 0, 0, 123457, tzinfo=UTC)
MOMENTS = pa.timestamp("us", tz="UTC")


def append(folder: Path, first: int, count: int = 3) -> None:
    numbers = range(first, first + count)
    rows = {
        "device": [f"uno-{n}" for n in numbers],
        "sequence": pa.array(numbers, pa.int64()),
        "value": [None, *(n / 3 for n in numbers[1:])],
        "received": pa.array([MOMENT + timedelta(seconds=n) for n in numbers], MOMENTS),
        "ingested": pa.array([MOMENT + timedelta(seconds=n) for n in numbers], MOMENTS),
        "payload": [bytes([n]) for n in numbers],
    }
    write_deltalake(folder, pa.table(rows), mode="append")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for first in (1, 4):
        append(tmp_path / "table", first)
    return tmp_path / "table"


def test_table_that_answers_as_its_files_say_has_no_difference(table: Path) -> None:
    assert list(differences(table)) == []


def test_missing_table_has_no_difference(tmp_path: Path) -> None:
    assert list(differences(tmp_path / "none")) == []


def narrower(name: str, kind: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(add: dict[str, Any]) -> None:
        stats = json.loads(add["stats"])
        stats[kind][name] = value
        add["stats"] = json.dumps(stats)

    return change


@pytest.mark.parametrize(
    "change",
    [
        narrower("sequence", "maxValues", 5),
        narrower("sequence", "minValues", 5),
        narrower("device", "maxValues", "uno-5"),
        narrower("value", "maxValues", 1.7),
        narrower("received", "maxValues", "2026-11-22T12:00:05.123Z"),
        narrower("ingested", "minValues", "2026-11-22T12:00:05.123Z"),
        narrower("value", "nullCount", 0),
        narrower("value", "nullCount", 3),
        narrower("device", "nullCount", 1),
        lambda add: add.update(dataChange=False),
        lambda add: add.update(modificationTime=add["modificationTime"] - 3_600_000),
        lambda add: add.update(stats=add["stats"].replace('"numRecords":3', '"numRecords":2')),
        lambda add: add.update(size=add["size"] + 1),
    ],
)
def test_wrong_entry_of_the_log_is_reported(
    table: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    commit = table / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            change(action["add"])
    commit.write_text("\n".join(map(json.dumps, actions)))
    assert list(differences(table))


def test_missing_file_is_reported(table: Path) -> None:
    file = max(table.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    file.unlink()
    assert list(differences(table)) == [f"table names a file that does not exist: {file.name}"]


def test_version_with_fewer_rows_than_before_is_reported(table: Path) -> None:
    empty = pa.table({"device": pa.array([], pa.string())})
    write_deltalake(table, empty, mode="overwrite", schema_mode="overwrite")
    assert "table has 0 rows in version 2, but 6 before that" in list(differences(table))


def test_duckdb_is_asked_too(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []

    def one_less(files: list[str]) -> Callable[[str, Any], int]:
        assert len(files) == 2
        return lambda name, value: asked.append((name, value)) or 0

    monkeypatch.setattr("hil.observe.asked._duckdb", one_less)
    said = list(differences(table))
    assert {name for name, _ in asked} == {"device", "sequence", "value", "received", "ingested"}
    assert len(said) == len(asked)
    assert "in table, DuckDB finds 0 rows where sequence is 1, but the files have 1" in said


OF_LOG = {name: one for name, one in catalogue().items() if one.symbol == "add_action"}


@pytest.mark.parametrize("name", ["", *OF_LOG])
def test_harmed_entry_of_the_product_s_own_log_is_noticed(tmp_path: Path, name: str) -> None:
    """The test calls the judge's function on a small table, because a bench starts Spark, which
    takes long.
    """
    source = ROOT / "gateway/ingest/sink/data_files.py"
    text = edited(OF_LOG[name], ROOT)[1] if name else source.read_text()
    harmed: dict[str, Any] = {"__name__": "harmed"}
    exec(compile(text, str(source), "exec"), harmed)
    append(tmp_path / "source", 4)
    [file] = (tmp_path / "source").glob("*.parquet")
    rows = pq.read_table(file, partitioning=None)
    names = {"delta.dataSkippingStatsColumns": "device,sequence,received"}
    write_deltalake(tmp_path / "table", rows.slice(0, 0), configuration=names)
    shutil.copyfile(file, tmp_path / "table" / file.name)
    action = harmed["add_action"](file.name, file.stat().st_size, rows)
    (tmp_path / "table/_delta_log" / f"{1:020d}.json").write_text(action + "\n")
    assert bool(list(differences(tmp_path / "table"))) is bool(name)
