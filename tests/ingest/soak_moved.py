"""The table on S3 changes while the job runs. It is deleted, replaced by a copy, or restored by
`RESTORE`. In other tests, the next job gets a clone of the table, or another table. `make soak`
runs these tests, which take minutes.

Each test compares the table with the landed batches: nothing is lost or doubled.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from gateway.ingest.delta.writers import WriterName
from gateway.ingest.report.tables import rows_by_feed
from tests.ingest.batches import EPOCH
from tests.ingest.s3_site import S3Site
from tests.uplink.servers import S3Server, s3_server, wait_until

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.parametrize("writer", ["fast", "public"]),
]

FEED = f"site/{EPOCH}"
NUMBER, MICRO_BATCHES = 6, 3
"""Number of batches that an `S3Site` lands at first, and number of micro-batches in which the
stream reads them.
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture
def site(tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Site:
    return S3Site(tmp_path, server, monkeypatch, checkpoint_there=True)


def land(site: S3Site, number: int) -> None:
    site.land(number, "later", range(number * 10, number * 10 + 3))
    site.upload()


def later(*numbers: int) -> list[tuple[str, int, int]]:
    """Return the keys that are in the later batches with these numbers."""
    return [("later", 7, number * 10 + position) for number in numbers for position in range(3)]


def runs(site: S3Site, writer: WriterName) -> subprocess.Popen[bytes]:
    """Start a job. Return it, still running, when it has ingested all landed batches."""
    job = site.start(writer=writer, every="500ms")
    wait_for(site, job, MICRO_BATCHES)
    return job


def wait_for(site: S3Site, job: subprocess.Popen[bytes], micro_batches: int) -> None:
    log = site.folder / "checkpoint.log"

    def done() -> bool:
        assert job.poll() is None, site.said()
        return log.read_text().count("rows in,") >= micro_batches

    wait_until(done, f"{micro_batches} micro-batches", timeout=400)


def moved_under(
    site: S3Site,
    writer: WriterName,
    job: subprocess.Popen[bytes],
    move: Callable[[], None],
    why: str = "the table was deleted, restored from a copy",
) -> None:
    """Change the table under a running job by `move`, and land a batch. Check that the job ends
    with an error whose text has `why`. Check that the next start takes all missing batches.
    """
    move()
    land(site, 8)
    assert job.wait(timeout=400) == 1, site.said()
    last = site.said().splitlines()[-1]
    assert last.startswith(f"error: {site.on_s3}: ")
    assert why in last
    assert "Start the ingest again" in last
    assert site.start(writer=writer).wait(timeout=400) == 0, site.said()


def test_deleted(site: S3Site, writer: WriterName) -> None:
    job = runs(site, writer)
    land(site, 7)
    wait_for(site, job, MICRO_BATCHES + 1)

    def delete() -> None:
        for suffix in ("", "_readings"):
            site.delete(f"{site.on_s3}{suffix}")

    moved_under(site, writer, job, delete)
    site.check(later(7, 8))


def test_put_back_from_a_copy(site: S3Site, writer: WriterName) -> None:
    job = runs(site, writer)
    copy = site.folder / "copy"
    site.files.get(f"{site.on_s3}/", f"{copy}/", recursive=True)
    land(site, 7)
    wait_for(site, job, MICRO_BATCHES + 1)

    def put_back() -> None:
        site.delete(site.on_s3)
        site.files.put(f"{copy}/", f"{site.on_s3}/", recursive=True)

    moved_under(site, writer, job, put_back)
    site.check(later(7, 8))


def test_set_back(site: S3Site, writer: WriterName) -> None:
    job = runs(site, writer)
    # reading the report does not disturb the job
    assert site.report()["feeds"][0]["taken"] == NUMBER
    version = site.delta().version()
    land(site, 7)
    wait_for(site, job, MICRO_BATCHES + 1)
    restore = f"RESTORE TABLE delta.`{site.on_s3}` TO VERSION AS OF {version}"
    moved_under(
        site, writer, job, lambda: site.sql(restore), "the table was restored to an older version"
    )
    site.check(later(7, 8))


def test_a_clone_of_it(site: S3Site, writer: WriterName) -> None:
    """The ingest continues in a shallow clone, and the original table stays unchanged. Spark can
    read the clone. deltalake does not find its files, and the report says so.
    """
    assert site.start(writer=writer).wait(timeout=400) == 0, site.said()
    table, clone = site.on_s3, f"{site.on_s3}-clone"
    site.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{table}`")
    site.files.copy(f"{table}_trusted.json", f"{clone}_trusted.json")
    land(site, 7)
    site.on_s3 = clone
    assert site.start(writer=writer).wait(timeout=400) == 0, site.said()
    with pytest.raises(OncewayError, match="does not find the files of a shallow clone"):
        rows_by_feed(clone)
    assert site.keys_by_spark() == site.keys("_readings") == site.landed(later(7))
    site.on_s3 = table
    site.check()


def test_another_table(site: S3Site, writer: WriterName) -> None:
    assert site.start(writer=writer).wait(timeout=400) == 0, site.said()
    table, other = site.on_s3, f"{site.on_s3}-other"
    site.files.copy(f"{table}_trusted.json", f"{other}_trusted.json")
    land(site, 7)
    site.on_s3 = other
    assert site.start(writer=writer).wait(timeout=400) == 0, site.said()
    ahead = f"it is ahead of the table: {FEED} (batch 6 in the checkpoint, 0 in the table)"
    assert ahead in site.said()
    site.check(later(7))
    site.on_s3 = table
    site.check()
