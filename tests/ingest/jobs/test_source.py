"""The source when Spark 4.1 calls it. Spark 4.2 also passes start and limit."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from gateway.ingest.jobs.source import LandingReader
from gateway.ingest.landing.keys import Keys, save
from gateway.ingest.landing.trust import Trust
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
