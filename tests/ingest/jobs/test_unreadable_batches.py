"""Batches that cannot be read at the moment. They are listed in the quarantine until the stream can
read them by itself. Other feeds and later batches do not wait for them.
"""

import errno
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.ingest.jobs.release import release, try_again
from gateway.ingest.landing import place as place_module
from gateway.ingest.landing.place import Landing
from gateway.ingest.report import report
from tests.ingest.batches import EPOCH, land, row
from tests.ingest.lake import Job
from tests.ingest.landing.closed_places import RaisingPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ERRORS = {
    "refused": partial(PermissionError, errno.EACCES, "refused"),
    "in time": partial(TimeoutError, "no answer in time"),
    "busy": partial(OSError, errno.EBUSY, "Please reduce your request rate"),
}


@pytest.fixture
def job(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(place_module, "PAUSES", (0.01, None))
    return Job(spark, tmp_path)


@pytest.mark.parametrize(
    "error",
    ["in time", *(pytest.param(one, marks=pytest.mark.soak) for one in ("refused", "busy"))],
)
def test_unreadable_data_wait_in_quarantine_until_they_can_be_read(job: Job, error: str) -> None:
    place = RaisingPlace(ERRORS[error])
    for gateway in ("a", "bad"):
        for number in (1, 2):
            land(job.landing, gateway, number, [row(gateway, number)])
    damaged = job.landing / "a" / EPOCH / "000000000002.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    place.put(job.landing)
    place.close(f"bad/{EPOCH}/000000000001.parquet")
    job.take(landing=place.url)
    assert job.keys() == [("a", 7, 1), ("bad", 7, 2)]
    reasons = {one["gateway"]: one["reason"] for one in job.table("_quarantine").collect()}
    assert reasons["bad"].startswith("cannot be read now: ")
    made = report.make(Landing(place.url), str(job.publications))
    assert {one.feed: one.quarantine for one in made.feeds} == {f"a/{EPOCH}": 1, f"bad/{EPOCH}": 1}
    assert made.problems(1e9)

    job.take(landing=place.url)  # the batch is still unreadable, so it stays in quarantine
    assert job.keys() == [("a", 7, 1), ("bad", 7, 2)]
    place.mend()
    sink = job.take(landing=place.url)  # the stream takes the batch by itself
    assert job.keys() == [("a", 7, 1), ("bad", 7, 1), ("bad", 7, 2)]
    assert not sink.quarantine.has_unreadable
    assert sink.quarantine.open() == [(f"a/{EPOCH}", 2)]
    # `release` takes the repaired batch, although another feed cannot be read
    place.close("a")
    assert release(job.spark, job.open(), Landing(place.url), job.trust()) == 1
    (found,) = (one["reason"] for one in job.table("_quarantine").collect() if not one["released"])
    assert found.startswith("cannot be read now: ")


def test_an_outage_ends_no_trying_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The landing place fails while a job tries to read the batch again. The next try still reads
    the batch.
    """
    place = RaisingPlace(ERRORS["in time"])
    for number in (1, 2):
        land(job.landing, "a", number, [row("a", number)])
    place.put(job.landing)
    place.close(f"a/{EPOCH}/000000000001.parquet")
    sink = job.take(landing=place.url)
    assert job.keys() == [("a", 7, 2)]
    place.close("")
    with pytest.raises(OSError, match="no answer"):
        try_again(job.spark, sink, Landing(place.url), job.trust())
    place.mend()
    try_again(job.spark, sink, Landing(place.url), job.trust())
    assert job.keys() == [("a", 7, 1), ("a", 7, 2)]
    assert not sink.quarantine.has_unreadable
