"""The ingest as processes: killed by SIGKILL at every step, started twice at once, on a cluster.
`make soak` runs it: it takes minutes.
"""

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from deltalake import DeltaTable

from gateway.ingest import command
from gateway.ingest.landing.keys import Keys, beside, save
from gateway.uplink.signing import load_or_make
from tests.ingest.batches import EPOCH, land, row
from tests.uplink.servers import free_ports, listens, running, wait_until

pytestmark = pytest.mark.timeout(600)

HERE = Path(__file__).parent
INGEST = "gateway.ingest"

STEPS = [
    ("after", f"{INGEST}.sink.microbatch:MicroBatch.__init__", 1),  # read
    ("after", f"{INGEST}.sink.quarantine:Quarantine.add", 2),
    ("after", f"{INGEST}.delta.transaction:DeltaWriter.append", 1),  # publications
    (
        "before",
        f"{INGEST}.delta.transaction:DeltaWriter.append",
        4,
    ),  # readings of the next micro-batch
    ("after", f"{INGEST}.delta.transaction:DeltaWriter.append", 4),
    ("before", f"{INGEST}.sink.microbatch:MicroBatch.discard", 3),  # files of rows seen before
    ("after", f"{INGEST}.report.counters:Counters.save", 2),
    (
        "after",
        f"{INGEST}.sink.foreach_batch:Sink.__call__",
        2,
    ),  # before Spark notes in its checkpoint that the micro-batch is done
    (
        "before",
        f"{INGEST}.sink.foreach_batch:Sink.__call__",
        2,
    ),  # after it has noted that of the first
    ("before", f"{INGEST}.dedup.snapshot:save", 1),  # state
    ("after", f"{INGEST}.dedup.snapshot:save", 1),
]


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.landing, self.table = folder / "landing", folder / "publications"
        signer = load_or_make(folder)
        save(beside(str(self.table)), Keys({"site": [signer.public]}))
        for number in range(1, 7):
            # each overlaps the next
            land(
                self.landing,
                "site",
                number,
                [row("dev", number * 10 + position) for position in range(12)],
                signer=signer,
            )
        damaged = self.landing / "site" / EPOCH / "000000000003.parquet"
        damaged.write_bytes(damaged.read_bytes()[:-1])

    def start(
        self,
        *dying: str,
        checkpoint: str = "checkpoint",
        table: str = "",
        master: str = "local[1]",
        conf: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        options = [
            "--landing",
            str(self.landing),
            "--table",
            table or str(self.table),
            "--checkpoint",
            str(self.folder / checkpoint),
        ]
        script = str(HERE / "die.py") if dying else "jobs/stream.py"
        line = command.build(
            script,
            [*dying, *options, "--available-now", "--rows", "24"],
            master=master,
            memory="1g",
            conf=list(conf),
        )
        environment = {**os.environ, **line.environment, "PYTHONPATH": str(HERE.parents[1])}
        log = (self.folder / f"{checkpoint}.log").open("ab")
        return subprocess.Popen(
            line.arguments,
            env=environment,
            stderr=log,
            stdout=log,
            start_new_session=True,
            cwd=self.folder,
        )

    def said(self, checkpoint: str = "checkpoint") -> str:
        return (self.folder / f"{checkpoint}.log").read_text()[-3000:]

    def keys(self, suffix: str = "") -> Counter[tuple[str, int, int]]:
        rows = (
            DeltaTable(f"{self.table}{suffix}")
            .to_pyarrow_table(columns=["device", "incarnation", "sequence"])
            .to_pylist()
        )
        return Counter((one["device"], one["incarnation"], one["sequence"]) for one in rows)

    def check(self) -> None:
        """Each publication and each reading once; those of the damaged batch that no other batch
        holds are missing.
        """
        expected = {
            ("dev", 7, number * 10 + position)
            for number in (1, 2, 4, 5, 6)
            for position in range(12)
        }
        assert self.keys() == Counter(dict.fromkeys(expected, 1))
        assert self.keys("_readings") == self.keys()
        assert len(DeltaTable(f"{self.table}_quarantine").to_pyarrow_table()) == 1


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(("when", "step", "count"), STEPS)
def test_killed_at_a_step_and_started_again(site: Site, when: str, step: str, count: int) -> None:
    killed = site.start(when, step, str(count))
    assert killed.wait(timeout=200) == -signal.SIGKILL, f"the step was not reached: {site.said()}"
    assert site.start().wait(timeout=200) == 0
    site.check()


def test_killed_while_tasks_write_files(site: Site) -> None:
    started = site.start()
    wait_until(lambda: any(site.table.glob("part-*")), "the first file", timeout=200)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert site.start().wait(timeout=200) == 0
    site.check()


def test_two_jobs_at_once(site: Site) -> None:
    one, other = site.start(checkpoint="one"), site.start(checkpoint="other")
    assert (one.wait(timeout=300), other.wait(timeout=300)) == (0, 0)
    site.check()


def test_a_catalog_table_is_the_same_table_at_the_next_start(site: Site) -> None:
    """Without a metastore of its own, Spark keeps one in the folder where it is started."""
    warehouse = f"spark.sql.warehouse.dir={site.folder}"
    for _ in range(2):
        assert site.start(table="publications", conf=[warehouse]).wait(timeout=300) == 0, (
            site.said()
        )
        shutil.rmtree(site.folder / "checkpoint")  # so that the second start reads everything again
    site.check()


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """One master and two workers on loopback; yields the master's URL."""
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    spark_class = Path(find_spec("pyspark").origin).parent / "bin" / "spark-class"  # type: ignore[union-attr, arg-type]
    base = [str(spark_class), "org.apache.spark.deploy"]
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        stack.enter_context(
            running(
                [base[0], f"{base[1]}.master.Master", *here, "--port", str(port)],
                folder / "master.log",
            )
        )
        wait_until(lambda: listens(port), "Spark's master")
        for name in ("one", "two"):
            worker = [
                *here,
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / name),
                url,
            ]
            stack.enter_context(
                running([base[0], f"{base[1]}.worker.Worker", *worker], folder / f"{name}.log")
            )
        wait_until(
            lambda: (folder / "master.log").read_text().count("Registering worker") == 2,
            "both workers",
        )
        yield url


def test_a_cluster_of_one_master_and_two_workers(site: Site) -> None:
    with cluster(site.folder) as url:
        conf = [
            "spark.driver.host=127.0.0.1",
            "spark.driver.bindAddress=127.0.0.1",
            "spark.executor.memory=512m",
        ]
        assert site.start(master=url, conf=conf).wait(timeout=300) == 0, site.said()
        # both had executors
        assert all(list((site.folder / name).glob("app-*/*/stderr")) for name in ("one", "two"))
    site.check()
