"""The ingest as processes that spark-submit starts, and a Spark cluster for them."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from deltalake import DeltaTable

from gateway.ingest import command
from gateway.ingest.delta.writers import WriterName
from gateway.ingest.landing.keys import Keys, keys_url, save
from gateway.uplink.signing import load_or_make
from tests.ingest.batches import EPOCH, land, row
from tests.service.process import free_port
from tests.uplink.servers import listens, running, wait_until

HERE = Path(__file__).parent
START_S = 120
"""Time limit in seconds for the start of a Java program, on a busy machine."""

SHORT_LIVED_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""Environment for Java processes that are too short for the second compiler."""

Key = tuple[str, int, int]


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = str(folder)
        self.landing, self.table = folder / "landing", folder / "publications"
        self._signer = load_or_make(folder)
        save(keys_url(str(self.table)), Keys({"site": [self._signer.public]}))
        for number in range(1, 7):
            # the ranges of neighbouring batches overlap
            self.land(number, "dev", range(number * 10, number * 10 + 12))
        damaged = self.landing / "site" / EPOCH / "000000000003.parquet"
        damaged.write_bytes(damaged.read_bytes()[:-1])

    def land(self, number: int, device: str, sequences: Iterable[int]) -> None:
        rows = [row(device, sequence) for sequence in sequences]
        land(self.landing, "site", number, rows, signer=self._signer)

    def start(
        self,
        *dying: str,
        checkpoint: str = "checkpoint",
        landing: str = "",
        table: str = "",
        writer: WriterName = "auto",
        rows: int = 24,
        master: str = "local[1]",
        conf: Sequence[str] = (),
        every: str = "",
    ) -> subprocess.Popen[bytes]:
        options = [
            "--landing",
            landing or str(self.landing),
            "--table",
            table or str(self.table),
            "--checkpoint",
            f"{self.checkpoints}/{checkpoint}",
            "--writer",
            writer,
            "--rows",
            str(rows),
            *(["--every", every] if every else ["--available-now"]),
        ]
        script = str(HERE / "die.py") if dying else "jobs/stream.py"
        line = command.build(
            script,
            [*dying, *options],
            master=master,
            memory="1g",
            conf=list(conf),
            downloaded=True,
        ).submitted()
        log = (self.folder / f"{checkpoint}.log").open("ab")
        return subprocess.Popen(
            line.arguments,
            env=environment_of(line),
            stderr=log,
            stdout=log,
            start_new_session=True,
            cwd=self.folder,
        )

    def said(self, checkpoint: str = "checkpoint") -> str:
        return (self.folder / f"{checkpoint}.log").read_text()[-3000:]

    def delta(self, suffix: str = "") -> DeltaTable:
        return DeltaTable(f"{self.table}{suffix}")

    def keys(self, suffix: str = "") -> Counter[Key]:
        rows = (
            self.delta(suffix)
            .to_pyarrow_table(columns=["device", "incarnation", "sequence"])
            .to_pylist()
        )
        return Counter((one["device"], one["incarnation"], one["sequence"]) for one in rows)

    def landed(self, more: Iterable[Key] = ()) -> Counter[Key]:
        """Return the keys that the table should have, each with count 1. Batch 3 is damaged, so
        keys that only this batch has are missing. more: other keys that were landed.
        """
        expected = {
            ("dev", 7, number * 10 + position)
            for number in (1, 2, 4, 5, 6)
            for position in range(12)
        }
        return Counter(dict.fromkeys(expected.union(more), 1))

    def check(self, more: Iterable[Key] = ()) -> None:
        """Check that each landed publication is in its table once, that each of them has its
        reading, and that one batch is in quarantine. more: further keys that must be in the tables.
        """
        assert self.keys() == self.landed(more)
        assert self.keys("_readings") == self.keys()
        assert len(self.delta("_quarantine").to_pyarrow_table()) == 1


def environment_of(line: command.Command) -> dict[str, str]:
    """Return the environment for a command of this source tree."""
    return {
        **os.environ,
        **SHORT_LIVED_JAVA,
        **line.environment,
        "PYTHONPATH": str(HERE.parents[1]),
    }


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Run a Spark master and some workers with one core each, on loopback. Yield the master's URL.
    The logs of the executors are in the folders `worker-1`, `worker-2`, …
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    spark_class = Path(find_spec("pyspark").origin).parent / "bin" / "spark-class"  # type: ignore[union-attr, arg-type]
    base = [str(spark_class), "org.apache.spark.deploy"]
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    env = {**os.environ, **SHORT_LIVED_JAVA, "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC"}
    with ExitStack() as stack:
        stack.enter_context(
            running(
                [base[0], f"{base[1]}.master.Master", *here, "--port", str(port)],
                folder / "master.log",
                env,
            )
        )
        wait_until(lambda: listens(port), "Spark's master", START_S)
        for name in (f"worker-{number}" for number in range(1, workers + 1)):
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
                running([base[0], f"{base[1]}.worker.Worker", *worker], folder / f"{name}.log", env)
            )
        wait_until(
            lambda: (folder / "master.log").read_text().count("Registering worker") == workers,
            "the workers",
            START_S,
        )
        yield url
