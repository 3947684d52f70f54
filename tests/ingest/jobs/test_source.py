"""The source when Spark 4.1 calls it. Spark 4.2 also passes start and limit."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from gateway.ingest.jobs import source as source_module
from gateway.ingest.jobs.source import BatchList, LandingReader, read_batches
from gateway.ingest.landing.keys import Keys, save
from gateway.ingest.landing.place import Landing
from gateway.ingest.landing.trust import Trust
from gateway.ingest.sink.data_files import DataFiles
from gateway.ingest.sink.microbatch import MicroBatch
from gateway.uplink.batch import Manifest, Origin, sha256
from tests.ingest.batches import EPOCH, land, row

FEED = f"site/{EPOCH}"


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    for number in range(1, 6):
        land(tmp_path / "landing", "site", number, [row("dev", 2 * number + one) for one in (0, 1)])
    save(str(tmp_path / "trusted.json"), Keys(unsigned=True))
    return tmp_path / "landing"


def reader(landing: Path, taken: dict[str, int] | None = None, **options: Any) -> LandingReader:
    trust = Trust(str(landing.with_name("trusted.json")), False)
    return LandingReader(str(landing), taken or {}, 4, 2, False, trust, None, **options)


def test_source_continues_from_its_last_offset_in_bounded_steps(landing: Path) -> None:
    source = reader(landing)
    assert [source.latestOffset()[FEED] for _ in range(4)] == [2, 4, 5, 5]
    land(landing, "site", 6, [row("dev", 60)])
    assert source.latestOffset() == {FEED: 6}


def test_source_begins_at_the_progress_of_the_table(landing: Path) -> None:
    assert reader(landing, {FEED: 3}).latestOffset() == {FEED: 5}


def test_one_pass_reads_all_batches(landing: Path) -> None:
    assert reader(landing, one_pass=True).latestOffset() == {FEED: 5}


def test_after_a_restart_it_goes_on_behind_the_micro_batch_that_is_made_again(
    landing: Path,
) -> None:
    source = reader(landing)
    batches = [one for part in source.partitions({}, {FEED: 4}) for one in part.batches]  # type: ignore[attr-defined]
    assert [one.number for one in batches] == [1, 2, 3, 4]
    assert source.latestOffset() == {FEED: 5}


def test_source_is_imported_without_pandas() -> None:
    """Spark's Python processes import the module one after the other, before they read the first
    rows. With pandas, that would take long.
    """
    code = "import sys, gateway.ingest.jobs.source; print('pandas' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_batch_without_rows_counts_as_read_and_a_task_gathers_few_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of batch 3 are in the file of batches 1 and 2; batch 4 is in a file of its own."""
    for number, count in enumerate((2, 1, 1, 1), 1):
        land(tmp_path, "site", number, [row("dev", 10 * number + one) for one in range(count)])
    path = tmp_path / FEED / f"{2:012d}.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    data = path.read_bytes()
    manifest = Manifest(Origin("site", EPOCH), 2, 0, len(data), sha256(data))
    path.with_suffix(".json").write_bytes(manifest.to_json())
    monkeypatch.setattr(source_module, "CHUNK_ROWS", 3)
    landing = Landing(str(tmp_path))
    batches = [landing.manifest(FEED, number) for number in range(1, 5)]
    part = BatchList(1 << 32, [one for one in batches if one is not None])
    rows = [one for chunk in read_batches(landing, part) for one in chunk.to_pylist()]
    first = part.first_chunk
    assert [(one["sequence"], one["batch"], one["chunk"]) for one in rows] == [
        (None, 2, -1),
        (10, 1, first),
        (11, 1, first),
        (30, 3, first),
        (40, 4, first + 1),
    ]
    for name in ("lake", "lake_readings"):
        (tmp_path / name).mkdir()
    files = DataFiles(f"{tmp_path}/lake", f"{tmp_path}/lake_readings")
    written = pa.Table.from_batches([files.put(one) for one in read_batches(landing, part)])
    frame: Any = SimpleNamespace(sparkSession=None, toArrow=lambda: written)
    found = MicroBatch(frame, {})
    assert found.damaged == []
    assert (found.feeds[FEED].first, found.feeds[FEED].number, found.arrived) == (1, 4, 4)


def test_landing_place_that_is_down_moves_no_offset(
    landing: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = reader(landing)
    begin = source.latestOffset()

    def down(*_: object) -> None:
        raise TimeoutError("no answer in time")

    monkeypatch.setattr(source._feeds, "advance", down)
    assert source.latestOffset() == begin
    assert "the landing place cannot be read now: no answer in time" in caplog.text
