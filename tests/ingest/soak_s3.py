"""The tables on S3: with Hadoop's s3a, Delta's `S3SingleDriverLogStore` and a real S3 server
(SeaweedFS). The job is killed by SIGKILL at steps that differ from those on a local disk, and
started again. `make soak` runs these tests, which take minutes.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.ingest.delta.writers import WriterName
from tests.ingest.s3_site import S3Site
from tests.uplink.servers import S3Server, s3_server

pytestmark = pytest.mark.timeout(900)

INGEST = "gateway.ingest"

STEPS: list[tuple[WriterName, str, str, int]] = [
    ("fast", "after", f"{INGEST}.sink.microbatch:MicroBatch.__init__", 1),  # data files are written
    # publications are committed
    ("fast", "after", f"{INGEST}.delta.transaction:DeltaWriter.append", 1),
    ("fast", "after", f"{INGEST}.delta.transaction:DeltaWriter.append", 4),
    # before the counters are saved
    ("fast", "before", f"{INGEST}.delta.storage:HadoopFolder._create", 2),
    ("fast", "before", f"{INGEST}.dedup.snapshot:save", 1),
    ("public", "after", f"{INGEST}.delta.public:PublicTable.append", 1),
    ("public", "before", f"{INGEST}.delta.public:PublicWriter.append", 4),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture
def site(tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Site:
    return S3Site(tmp_path, server, monkeypatch)


@pytest.mark.parametrize(("writer", "when", "step", "count"), STEPS)
def test_killed_at_a_step_and_started_again(
    site: S3Site, writer: WriterName, when: str, step: str, count: int
) -> None:
    killed = site.start(when, step, str(count), writer=writer)
    assert killed.wait(timeout=400) == -signal.SIGKILL, f"the step was not reached: {site.said()}"
    assert site.start(writer=writer).wait(timeout=400) == 0, site.said()
    site.check()
    ranges = [name for name in site.files.ls(f"{site.on_s3}/_onceway") if "/seen-" in name]
    assert ranges, "no snapshot of what it has seen"
    (feed,) = site.report()["feeds"]
    assert (feed["taken"], feed["landed"], feed["rows"], feed["quarantine"]) == (6, 6, 54, 1)


def test_a_lost_checkpoint_is_no_loss(site: S3Site) -> None:
    """A start without its old checkpoint takes its progress from the bucket, and ingests no row
    again.
    """
    assert site.start(checkpoint="one").wait(timeout=400) == 0, site.said("one")
    version = site.delta().version()
    assert site.start(checkpoint="two").wait(timeout=400) == 0, site.said("two")
    assert " 0 rows in" in site.said("two")
    assert site.delta().version() == version
    site.check()


def test_compacted_and_summarised(site: S3Site) -> None:
    assert site.start().wait(timeout=400) == 0, site.said()
    site.upkeep("compact")
    site.upkeep("summarise")
    site.check()
    days = site.delta("_quality").to_pyarrow_table().to_pylist()
    told = [sum(day[what] for day in days) for what in ("arrived", "missing", "duplicates")]
    assert told == [54, 8, 6]


def test_a_repaired_batch_is_released(site: S3Site) -> None:
    assert site.start().wait(timeout=400) == 0, site.said()
    site.land(3, "dev", range(30, 42))
    site.upload()
    site.upkeep("release", "--landing", site.at_s3)
    site.check(("dev", 7, sequence) for sequence in range(30, 42))


def test_expired_rows_do_not_come_back(site: S3Site) -> None:
    """The bucket keeps the keys of expired rows, so the ingest knows that these are duplicates."""
    assert site.start().wait(timeout=400) == 0, site.said()
    site.upkeep("expire", "--older-than", "1d")
    assert not site.keys()
    assert not site.keys("_readings")
    site.land(7, "dev", range(10, 22))
    site.upload()
    assert site.start().wait(timeout=400) == 0, site.said()
    assert " 12 rows in, 0 new, 12 seen" in site.said()
    assert not site.keys()
