"""A pass with a feed that is held: all other feeds are read, and the exit code tells cron or a
systemd timer that a person has to look.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.ingest.exit_codes import SOMEBODY_SHOULD_LOOK
from gateway.ingest.jobs import script, stream
from gateway.ingest.jobs.source import LandingReader
from gateway.ingest.landing.keys import Keys, save
from gateway.ingest.landing.trust import Trust
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = f"good/{EPOCH}"


def hole(landing: Path) -> None:
    for ending in ("json", "parquet"):
        (landing / "bad" / EPOCH / f"000000000002.{ending}").unlink()


def far_hole(landing: Path) -> None:
    """Remove the first batch."""
    for ending in ("json", "parquet"):
        (landing / "bad" / EPOCH / f"000000000001.{ending}").unlink()


def odd_name(landing: Path) -> None:
    (landing / "bad").rename(landing / "_bad")


def unreadable(landing: Path) -> None:
    """Remove the first batch, and make the note of cleaned batches unreadable."""
    for ending in ("json", "parquet"):
        (landing / "bad" / EPOCH / f"000000000001.{ending}").unlink()
    (landing / "bad" / "cleaned.json").mkdir()


def not_in_utf_8(landing: Path) -> None:
    os.rename(landing / "bad", os.fsencode(landing) + b"/bad\xe9")


HELD: list[Callable[[Path], None]] = [hole, far_hole, odd_name, unreadable, not_in_utf_8]


def fill(landing: Path) -> None:
    for gateway in ("good", "bad"):
        for number in (1, 2, 3):
            land(landing, gateway, number, [row(gateway, number)])


def one_pass(landing: Path, folder: Path, keys: Keys, rows: int) -> list[str]:
    """Ask the source for offsets until it has no more, as Spark does. Return the feeds that are
    held at the end.
    """
    save(str(folder / "keys.json"), keys)
    trust, file = Trust(str(folder / "keys.json"), True), folder / "held.json"
    reader = LandingReader(str(landing), {}, rows, 1, False, trust, None, True, str(file))
    end: dict[str, int] = {}
    while (after := reader.latestOffset(end, None if rows > 9 else _rows(rows))) != end:
        end = after
    assert end[GOOD] == 3
    return list(json.loads(file.read_text()))


def _rows(rows: int) -> object:
    from gateway.ingest.jobs.read_limits import ReadMaxRows

    return ReadMaxRows(rows)


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("held", HELD)
def test_pass_reports_the_feeds_that_it_leaves_out(
    tmp_path: Path, held: Callable[[Path], None], rows: int
) -> None:
    landing = tmp_path / "landing"
    fill(landing)
    assert one_pass(landing, tmp_path, Keys(unsigned=True), rows) == []
    held(landing)
    (name,) = one_pass(landing, tmp_path, Keys(unsigned=True), rows)
    assert "bad" in name


def test_a_gateway_without_a_key_is_left_behind(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    fill(landing)
    save(str(tmp_path / "keys.json"), Keys(unsigned=False))
    file = tmp_path / "held.json"
    trust = Trust(str(tmp_path / "keys.json"), True)
    reader = LandingReader(str(landing), {}, 9, 1, False, trust, None, True, str(file))
    assert reader.latestOffset({}) == {}
    assert json.loads(file.read_text()) == [f"bad/{EPOCH}", GOOD]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_exit_code_of_one_pass_says_that_a_feed_is_held(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Job(spark, tmp_path)
    fill(job.landing)
    saved = tmp_path / "saved"
    shutil.copytree(job.landing, saved)
    hole(job.landing)
    monkeypatch.setattr(stream, "open_session", lambda named: spark)
    monkeypatch.setattr(stream, "close_session", lambda spark: None)
    monkeypatch.setattr(stream.signal, "signal", lambda number, handler: None)
    caplog.set_level(logging.INFO)
    with pytest.raises(SystemExit) as ended:
        script.run_script(lambda: stream.run(job.options()))
    assert ended.value.code == SOMEBODY_SHOULD_LOOK
    assert f"held: bad/{EPOCH}. `onceway ingest report` says why" in caplog.text
    assert job.keys() == [("bad", 7, 1), *(("good", 7, number) for number in (1, 2, 3))]
    shutil.rmtree(job.landing)
    saved.rename(job.landing)
    # raises no SystemExit, so the exit code is 0
    script.run_script(lambda: stream.run(job.options()))
    assert len(job.keys()) == 6
