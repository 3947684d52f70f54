"""A landing place that another program copies to the centre. Files arrive in any order and in
pieces. With `--settle`, an incomplete batch waits, and the ingest reads it when it is complete.
"""

import os
import random
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.ingest.jobs import stream
from gateway.ingest.landing import offsets as feeds_module
from gateway.ingest.landing.batch import flaw
from gateway.ingest.landing.offsets import Feeds
from gateway.ingest.landing.place import Landing
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.lake import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = f"site/{EPOCH}"
SETTLE_S = 600.0
ALL = 10**9

Piece = tuple[str, float]
"""Name of a file, and the number of its halves that have arrived: 0, 1 or 2."""


class Copy:
    """Batches of a gateway, and the copy of its landing place at the centre."""

    def __init__(self, folder: Path, batches: int = 1) -> None:
        for number in range(1, batches + 1):
            land(folder / "landing", "site", number, [row("dev", number)])
        self._source = folder / "landing" / FEED
        self.files = sorted(path.name for path in self._source.iterdir())
        self.landing = folder / "copy"
        (self.landing / FEED).mkdir(parents=True)

    def put(self, name: str, part: float = 1.0, filled: bool = False, age_s: float = 0.0) -> Path:
        """Copy the first part of a file to the centre. part: share of its bytes, 0 to 1. filled:
        zeros take the place of the missing bytes. age_s: age of the copied file in seconds.
        """
        data = (self._source / name).read_bytes()
        there = data[: int(len(data) * part)]
        path = self.landing / FEED / name
        path.write_bytes(there.ljust(len(data), b"\0") if filled else there)
        os.utime(path, (time.time() - age_s,) * 2)
        return path


def feeds(copy: Copy, settle: float = SETTLE_S) -> Feeds:
    return Feeds(Landing(str(copy.landing)), settle=settle)


def in_every_order(files: list[str]) -> Iterator[list[Piece]]:
    """Yield each order in which the states of all files can appear: empty, half, and complete."""
    pieces = [name for name in files for _ in range(3)]
    for order in sorted(set(permutations(pieces))):
        yield [(name, order[: at + 1].count(name) - 1) for at, name in enumerate(order)]


@pytest.mark.parametrize("filled", [False, True])
def test_batch_is_read_after_its_copy_is_complete_in_any_order(
    tmp_path: Path, filled: bool
) -> None:
    copy = Copy(tmp_path)
    for order in in_every_order(copy.files):
        state, reached = feeds(copy), 0
        for name, step in order:
            copy.put(name, step / 2, filled)
            found = state.advance({}, ALL).get(FEED, 0)
            is_whole = all((copy.landing / FEED / one).exists() for one in copy.files) and all(
                (copy.landing / FEED / one).read_bytes() == (copy._source / one).read_bytes()
                for one in copy.files
            )
            assert found == is_whole, (order, name)
            reached = max(reached, found)
        (manifest,) = state.between({}, {FEED: reached})
        assert flaw(Landing(str(copy.landing)), manifest) is None
        for name in copy.files:
            (copy.landing / FEED / name).unlink()


def test_batches_that_come_mixed_are_taken_in_order_each_whole(tmp_path: Path) -> None:
    copy = Copy(tmp_path, 4)
    for seed in range(6):
        drawn = random.Random(seed)
        order = [(name, half) for name in copy.files for half in (0.5, 1.0)]
        drawn.shuffle(order)
        done: dict[str, float] = {}
        state, offset = feeds(copy), {}
        for name, half in order:
            done[name] = max(half, done.get(name, 0.0))
            copy.put(name, done[name])
            offset = state.advance(offset, ALL)
            for manifest in state.between({}, offset):
                assert flaw(Landing(str(copy.landing)), manifest) is None
        assert offset == {FEED: 4}
        for name in copy.files:
            (copy.landing / FEED / name).unlink()


def test_settling_reports_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeds_module, "HOLE_CHECK_SECONDS", 0.0)
    copy = Copy(tmp_path)
    state = feeds(copy)
    copy.put("000000000001.json")
    assert state.advance({}, ALL) == {}
    assert state.held_feeds == [FEED]
    assert "not whole yet (the Parquet file is missing)" in caplog.text
    copy.put("000000000001.parquet")
    assert state.advance({}, ALL) == {FEED: 1}


@pytest.mark.parametrize(
    ("ages", "settle", "taken"),
    [
        ((0, 0), 0.0, True),  # without `--settle`, no copy is expected
        ((0, 0), SETTLE_S, False),
        ((700, 700), SETTLE_S, True),
        ((700, 500), SETTLE_S, False),  # the data file has just changed
        ((500, 700), SETTLE_S, False),
        ((-300, -300), SETTLE_S, False),  # the clock of the copy is a little ahead
        ((-86400, -86400), SETTLE_S, True),  # the clock of the copy is wrong
    ],
)
def test_a_batch_that_is_not_whole_counts_as_damaged_after_the_time_of_its_files(
    tmp_path: Path, ages: tuple[int, int], settle: float, taken: bool
) -> None:
    copy = Copy(tmp_path)
    copy.put("000000000001.json", age_s=ages[0])
    copy.put("000000000001.parquet", 0.5, age_s=ages[1])
    state = feeds(copy, settle)
    assert state.advance({}, ALL) == ({FEED: 1} if taken else {})
    if taken:
        (manifest,) = state.between({}, {FEED: 1})
        assert "bytes instead of" in str(flaw(Landing(str(copy.landing)), manifest))


@pytest.mark.parametrize("text", ["10m", "2.5s", "0s"])
def test_the_time_is_an_option_of_the_job(text: str) -> None:
    where = ["--landing", "/l", "--table", "/t", "--checkpoint", "/c"]
    options = stream.parse_arguments([*where, "--settle", text])
    assert options.settle == {"10m": 600, "2.5s": 2.5, "0s": 0}[text]


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_batch_in_quarantine_is_taken_by_itself_when_its_copy_is_complete(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """A batch is in quarantine because its file was incomplete: its copy took longer than
    `--settle`, or the copying tool set the times of the original files.
    """
    copy = Copy(tmp_path / "gateway", 2)
    job = Job(spark, tmp_path)
    job.landing.rmdir()
    copy.landing.rename(job.landing)
    copy.landing = job.landing
    copy.put("000000000001.json", age_s=7200)
    copy.put("000000000002.json", age_s=7200)
    copy.put("000000000002.parquet")
    job.take(settle=SETTLE_S)
    assert job.keys() == [("dev", 7, 2)]
    (found,) = job.table("_quarantine").collect()
    assert found["reason"] == "the Parquet file is missing"
    copy.put("000000000001.parquet", 0.5, age_s=7200)
    job.take(settle=SETTLE_S)
    assert job.keys() == [("dev", 7, 2)]
    copy.put("000000000001.parquet", age_s=7200)
    job.take(settle=SETTLE_S)
    assert job.keys() == [("dev", 7, 1), ("dev", 7, 2)]
    (found,) = job.table("_quarantine").collect()
    assert found["released"] is not None
