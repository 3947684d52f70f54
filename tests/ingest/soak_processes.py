"""The ingest as processes: killed by SIGKILL at each step, started twice at once, and with Spark's
work folder full or emptied. `make soak` runs these tests, which take minutes.
"""

import os
import re
import shutil
import signal
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from gateway.ingest.delta.writers import WriterName
from tests.durability.disk import SmallDisk
from tests.ingest.jobs.test_cluster import take_in_on_two_workers
from tests.ingest.processes import Site
from tests.uplink.servers import wait_until

pytestmark = pytest.mark.timeout(600)

INGEST = "gateway.ingest"

STEPS: list[tuple[str, str, int]] = [
    ("after", f"{INGEST}.sink.microbatch:MicroBatch.__init__", 1),  # rows are read
    ("after", f"{INGEST}.sink.quarantine:Quarantine.add", 2),
    ("after", f"{INGEST}.delta.transaction:DeltaWriter.append", 1),  # publications are committed
    (
        "before",
        f"{INGEST}.delta.transaction:DeltaWriter.append",
        4,
    ),  # before the readings of the second micro-batch
    ("after", f"{INGEST}.delta.transaction:DeltaWriter.append", 4),
    # before unneeded files are deleted
    ("before", f"{INGEST}.sink.microbatch:MicroBatch.discard", 3),
    ("after", f"{INGEST}.report.counters:Counters.save", 2),
    (
        "after",
        f"{INGEST}.sink.foreach_batch:Sink.__call__",
        2,
    ),  # before Spark's checkpoint has the second micro-batch
    (
        "before",
        f"{INGEST}.sink.foreach_batch:Sink.__call__",
        2,
    ),  # when Spark's checkpoint has the first micro-batch
    ("before", f"{INGEST}.dedup.snapshot:save", 1),  # before the snapshot is saved
    ("after", f"{INGEST}.dedup.snapshot:save", 1),
]


PUBLIC_STEPS = [
    ("after", f"{INGEST}.sink.row_batch:RowBatch.__init__", 1),
    # before the writer checks whether the commit was written
    ("after", f"{INGEST}.delta.public:PublicTable.append", 1),
    ("before", f"{INGEST}.delta.public:PublicWriter.append", 4),
    ("after", f"{INGEST}.delta.public:PublicWriter.append", 4),
    ("after", f"{INGEST}.sink.foreach_batch:Sink.__call__", 2),
    ("before", f"{INGEST}.dedup.snapshot:save", 1),
]
"""Steps of the public writer that the fast writer does not have, and the last steps of a
micro-batch and of the job.
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    ("writer", "when", "step", "count"),
    [("fast", *step) for step in STEPS] + [("public", *step) for step in PUBLIC_STEPS],
)
def test_killed_at_a_step_and_started_again(
    site: Site, writer: WriterName, when: str, step: str, count: int
) -> None:
    killed = site.start(when, step, str(count), writer=writer)
    assert killed.wait(timeout=200) == -signal.SIGKILL, f"the step was not reached: {site.said()}"
    assert site.start(writer=writer).wait(timeout=200) == 0
    site.check()


def test_killed_while_tasks_write_files(site: Site) -> None:
    started = site.start()
    wait_until(lambda: any(site.table.glob("part-*")), "the first file", timeout=200)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert site.start().wait(timeout=200) == 0
    site.check()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", ["full", "cleaned"])
@pytest.mark.parametrize("writer", ["fast", "public"])
def test_spark_s_work_folder_is_full_or_cleaned_under_a_running_stream(
    site: Site, tmp_path: Path, writer: WriterName, fault: str
) -> None:
    """The work folder has shuffled and cached rows, and data for Python. A stream that needs none
    of these continues. Any other stream ends with a line that names the cause, and the next start
    takes the remaining rows.
    """
    if os.geteuid() != 0:
        pytest.skip("mounts a tmpfs")
    with closing(SmallDisk(tmp_path, 64_000_000)) as disk:
        conf = [f"spark.local.dir={disk.mount}"]
        started = site.start(writer=writer, conf=conf, every="1s")
        wait_until(lambda: rows_of(site) == sum(site.landed().values()), "the first rows", 300)
        if fault == "full":
            disk.fill()
        else:
            for folder in disk.mount.iterdir():
                shutil.rmtree(folder)
        # batches overlap, so Spark writes the rows of some of them again
        more = [("late", 7, sequence) for sequence in range(100, 150)]
        for number in range(7, 11):
            first = 100 + 10 * (number - 7)
            site.land(number, "late", range(first, first + 20))
        whole = sum(site.landed(more).values())
        wait_until(lambda: started.poll() is not None or rows_of(site) == whole, "an end", 300)
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait(timeout=120)
        else:
            assert started.returncode == 1, site.said()
            last = site.said().splitlines()[-1]
            assert re.match(r"error: (\S+: )?the ingest stopped: ", last), site.said()
            advice = (
                "Make room on the full disk"
                if fault == "full"
                else "Give Spark a folder of its own"
            )
            assert advice in last, last
        if fault == "full":
            disk.free()
        assert site.start(writer=writer, conf=conf).wait(timeout=300) == 0, site.said()
        site.check(more)


def rows_of(site: Site) -> int:
    made = any(site.table.glob("_delta_log/*.json"))
    return DeltaTable(site.table).count() if made else 0


@pytest.mark.parametrize("writer", ["fast", "public"])
def test_two_jobs_at_once(site: Site, writer: WriterName) -> None:
    """writer: the writer of the first job. The second job always uses the fast writer."""
    one, other = site.start(checkpoint="one", writer=writer), site.start(checkpoint="other")
    assert (one.wait(timeout=300), other.wait(timeout=300)) == (0, 0)
    site.check()


def test_a_catalog_table_is_the_same_table_at_the_next_start(site: Site) -> None:
    """Without a configured metastore, Spark creates one in its working directory, where the next
    start finds the table.
    """
    warehouse = f"spark.sql.warehouse.dir={site.folder}"
    for _ in range(2):
        assert site.start(table="default.publications", conf=[warehouse]).wait(timeout=300) == 0, (
            site.said()
        )
        # so that the second start reads all batches again
        shutil.rmtree(site.folder / "checkpoint")
    site.check()


def test_a_cluster_of_two_workers_with_the_public_writer(site: Site) -> None:
    take_in_on_two_workers(site, "public")
