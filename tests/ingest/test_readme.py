"""The examples in the ingest's README.md work. The spark-submit line runs word for word for a user,
on a cluster and in the systemd unit. Each of the three landing places and the three ways to read
the tables is tried.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cbor2
import pytest
from deltalake import DeltaTable

from gateway.config import parse
from gateway.ingest import command
from gateway.ingest.landing.keys import Keys, keys_url, save
from gateway.uplink.batch import Row
from gateway.uplink.signing import load_or_make
from tests.ingest.batches import land, row
from tests.ingest.lake import Job
from tests.ingest.processes import SHORT_LIVED_JAVA, cluster
from tests.uplink.conftest import GatewayData
from tests.uplink.servers import s3_server, sftp_server, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "gateway/ingest/README.md").read_text()
LINE = next(line.strip() for line in PAGE.splitlines() if line.startswith("    "))
BLOCKS = {
    (language, name): text
    for language, name, text in re.findall(
        r"^```(\w+) (\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
}
UNIT = (ROOT / "systemd/centre/onceway-ingest.service").read_text()
ENV = dict(
    line.split("=", 1)
    for line in (ROOT / "systemd/centre/ingest.env").read_text().splitlines()
    if line and not line.startswith("#")
)
START_S = 600
"""Longest time on a busy machine, in seconds, until the table has its first rows. Java and Ivy
start first, and the table is created.
"""


def expanded(text: str, **known: str) -> str:
    """Return a command of the unit with the values of ingest.env, as systemd inserts them."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: (ENV | known)[found[1]], text)


def lines_of(key: str) -> list[str]:
    return [line.partition("=")[2] for line in UNIT.splitlines() if line.startswith(f"{key}=")]


def test_the_line_stands_first_and_names_this_delta() -> None:
    words = shlex.split(LINE)
    assert words[0] == "spark-submit"
    packages = command.packages()[1]
    assert words[words.index("--packages") + 1] == packages
    assert (ROOT / next(word for word in words if word.endswith(".py"))).is_file()


def test_the_unit_runs_the_line() -> None:
    (started,) = lines_of("ExecStart")
    words = shlex.split(expanded(started))
    assert words.pop(0) == "/usr/bin/env"
    for option in ("--driver-memory", "--driver-java-options"):
        place = words.index(option)
        del words[place : place + 2]
    assert words == shlex.split(LINE)


def test_each_example_of_a_gateway_s_configuration_is_one() -> None:
    found = {name: text for (language, name), text in BLOCKS.items() if language == "toml"}
    assert found.keys() == {"folder", "sftp", "bucket"}
    for text in found.values():
        assert parse(tomllib.loads(text), "README.md").uplink is not None


class Centre:
    """The machine of README.md. Its processes see a folder of the test as /srv."""

    def __init__(self, folder: Path) -> None:
        self.srv = folder / "srv"
        self.landing, self.table = self.srv / "onceway/landing", self.srv / "lake/publications"
        self.landing.mkdir(parents=True)
        self.table.parent.mkdir()
        self.log = folder / "job.log"
        self.started: subprocess.Popen[bytes] | None = None
        self._signer = load_or_make(folder)
        save(keys_url(str(self.table)), Keys({"site-1": [self._signer.public]}))

    def land(self, number: int, sequences: range, **more: Any) -> None:
        rows = [row("roof-1", sequence, **more) for sequence in sequences]
        land(self.landing, "site-1", number, rows, signer=self._signer)

    @contextmanager
    def running(
        self, line: str, cwd: Path = ROOT, **more: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a line of shell, with `srv` mounted at /srv. cwd: its working directory. more:
        environment.
        """
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        bound = f'mount --bind "{self.srv}" /srv && {line}'
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", bound],
                stdout=log,
                stderr=log,
                cwd=cwd,
                env={**os.environ, **SHORT_LIVED_JAVA, "PATH": path, **more},
            )
        self.started = started
        try:
            yield started
        finally:
            started.kill()
            started.wait()

    def count(self) -> int:
        made = any(self.table.glob("_delta_log/*.json"))
        return DeltaTable(self.table).count() if made else 0

    def waits_for(self, rows: int) -> None:
        def have_come() -> bool:
            assert self.started is None or self.started.poll() is None, "the job has ended"
            return self.count() == rows

        try:
            wait_until(have_come, f"{rows} rows", START_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; there are {self.count()}: {self.said()}") from None

    def said(self) -> str:
        return self.log.read_text()[-3000:] if self.log.exists() else ""

    def keys(self) -> list[int]:
        rows = DeltaTable(self.table).to_pyarrow_table(columns=["sequence"])
        return sorted(rows["sequence"].to_pylist())


@pytest.fixture
def centre(tmp_path: Path) -> Centre:
    if os.geteuid() != 0:
        pytest.skip("binds a folder to /srv in a mount namespace")
    return Centre(tmp_path)


def stop_as_the_unit_does(started: subprocess.Popen[bytes]) -> None:
    stop, wait = (
        shlex.split(expanded(line.removeprefix("-"), MAINPID=str(started.pid)))
        for line in lines_of("ExecStop")
    )
    subprocess.run(stop, check=True)
    with subprocess.Popen(wait) as waiting:
        assert started.wait(timeout=90) == 0
        assert waiting.wait(timeout=10) == 0


@pytest.mark.soak
def test_the_line_takes_what_landed_and_stops_in_order(centre: Centre) -> None:
    centre.land(1, range(1, 6))
    with centre.running(f"exec {LINE}") as started:
        centre.waits_for(5)
        centre.land(2, range(6, 11))
        centre.waits_for(10)
        stop_as_the_unit_does(started)
    assert centre.keys() == list(range(1, 11))
    assert list((centre.table / "_onceway").glob("seen-*")), "it has saved what it has seen"
    assert not (ROOT / "spark-warehouse").exists()


@pytest.mark.soak
def test_one_pass_and_all_upkeep_run_as_they_are_written(centre: Centre) -> None:
    """The commands run in the guide's order. All rows are too new for `expire`, and all batches for
    `clean`.
    """
    centre.land(1, range(1, 6), received=time.time_ns() // 1000)
    every = re.findall(r"^ {4}(?:\.venv/bin/)?onceway ingest ((?:.*\\\n)*.*)", PAGE, re.MULTILINE)
    lines = [line for line in every if not line.startswith(("trust", "report"))]
    assert [line.split()[0] for line in lines] == [
        "run", "compact", "summarise", "expire", "release", "clean", "clean"
    ]  # fmt: skip
    known = {"URL": "/srv/onceway/landing", "PATH": "/srv/lake/publications", "NUMBER": "1"}
    (epoch,) = (centre.landing / "site-1").iterdir()
    known["GATEWAY/EPOCH"] = f"site-1/{epoch.name}"
    landed = {path: path.stat().st_mtime_ns for path in centre.landing.rglob("*")}
    for line in lines:
        text = re.sub("|".join(known), lambda found: known[found[0]], line)
        with centre.running(f"exec onceway ingest {text}") as started:
            assert started.wait(START_S) == 0, f"{text}: {centre.said()}"
        assert centre.keys() == [1, 2, 3, 4, 5]
        if not line.startswith("clean"):
            now = {path: path.stat().st_mtime_ns for path in centre.landing.rglob("*")}
            assert now == landed, "nothing is written there"
    assert DeltaTable(f"{centre.table}_quality").count() > 0


@pytest.mark.soak
def test_the_unit_s_line_runs_where_the_package_is(centre: Centre, tmp_path: Path) -> None:
    """The unit's WorkingDirectory contains the package, here by a link. The shell finds the
    programs of the line by PATH.
    """
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/gateway").symlink_to(ROOT / "gateway")
    centre.land(1, range(1, 6))
    line = f"exec {expanded(lines_of('ExecStart')[0], MEMORY='1g')}"
    with centre.running(line, tmp_path / "opt") as started:
        centre.waits_for(5)
        stop_as_the_unit_does(started)
    assert [file.name for file in (tmp_path / "opt").iterdir()] == ["gateway"]


@pytest.mark.soak
def test_a_cluster_runs_the_line_while_one_of_its_workers_is_killed(
    centre: Centre, tmp_path: Path
) -> None:
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1",
    }
    for number in range(1, 5):
        centre.land(number, range(number * 30_000, (number + 1) * 30_000))
    onceway = str(Path(sys.executable).with_name("onceway"))
    with cluster(tmp_path) as url:
        options = ["--landing", str(centre.landing), "--table", str(centre.table)]
        options += ["--checkpoint", str(tmp_path / "checkpoint"), "--master", url]
        options += ["--memory", "1g"]
        options += [part for one in conf.items() for part in ("--conf", "=".join(one))]
        told = subprocess.run(
            [onceway, "ingest", "command", *options, "--every", "1s"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert url in told.stdout
        with centre.running(f"exec env {told.stdout.strip()}") as started:
            executors = tmp_path.glob("worker-*/app-*/*/stderr")
            wait_until(lambda: len(list(tmp_path.glob("worker-*/app-*/*"))) == 2, "executors", 120)
            lost = executors_of(tmp_path / "worker-1")
            assert lost, list(executors)
            for pid in lost:
                os.kill(pid, 9)
            centre.waits_for(120_000)
            centre.land(5, range(150_000, 180_000))
            centre.waits_for(150_000)
            stop_as_the_unit_does(started)
    assert centre.keys() == list(range(30_000, 180_000))


def executors_of(work: Path) -> list[int]:
    """Return the ids of all processes whose command line has this folder: a worker and its
    executor.
    """
    found = subprocess.run(
        ["pgrep", "--full", str(work)], check=False, capture_output=True, text=True
    )
    return [int(pid) for pid in found.stdout.split() if int(pid) != os.getpid()]


@contextmanager
def places(kind: str, folder: Path) -> Iterator[Callable[[str], str]]:
    """Yield a function that inserts the addresses and keys of this test's servers into a text of
    README.md.
    """
    with ExitStack() as stack:
        if kind == "sftp":
            (folder / "sshd").mkdir()
            server = stack.enter_context(sftp_server(folder / "sshd"))
            names = {
                "landing@centre.example": f"{server.user}@127.0.0.1:{server.port}",
                "/var/lib/onceway-uplink/id": str(server.folder / "client"),
                "/etc/onceway/id": str(server.folder / "client"),
                "/var/lib/onceway-uplink/known_hosts": str(server.folder / "known_hosts"),
                "/etc/onceway/known_hosts": str(server.folder / "known_hosts"),
            }
        elif kind == "bucket":
            (folder / "weed").mkdir()
            store = stack.enter_context(s3_server(folder / "weed"))
            names = {
                "s3://onceway/": f"s3://{store.BUCKET}/",
                "=ID": f"={store.KEY}",
                "=SECRET": f"={store.SECRET}",
                "https://s3.us-east-1.amazonaws.com": f"http://127.0.0.1:{store.port}",
            }
        else:
            names = {}

        def placed(text: str) -> str:
            for name, value in names.items():
                text = text.replace(name, value)
            return text

        yield placed


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["folder", "sftp", "bucket"])
def test_a_reading_comes_by_each_kind_of_landing_place(
    centre: Centre, tmp_path: Path, kind: str
) -> None:
    """An uplink runs with README.md's configuration. Then the command of README.md ingests its
    batch.
    """
    data = GatewayData(tmp_path / "data")
    data.add(25)
    save(keys_url(str(centre.table)), Keys({"site-1": [load_or_make(data.path).public]}))
    with places(kind, tmp_path) as placed:
        config = tmp_path / "gateway.toml"
        text = placed(BLOCKS["toml", kind])
        if kind == "sftp":  # the server sees the folder of the test, not /srv
            text = text.replace("/srv/", f"{centre.srv}/")
        config.write_text(f'[gateway]\nname = "site-1"\ndata = "{data.path}"\n\n{text}')
        before = placed(BLOCKS.get(("sh", kind), LINE))
        if kind == "sftp":
            before = before.replace(f"{_port(text)}/srv/", f"{_port(text)}{centre.srv}/")
        *exports, line = before.strip().splitlines()
        exported = " && ".join([*exports, ""])
        onceway = Path(sys.executable).with_name("onceway")
        with centre.running(
            f'{exported} exec {onceway} uplink run --once --config "{config}"'
        ) as up:
            assert up.wait(timeout=120) == 0, centre.said()
        with centre.running(f"{exported} exec {line}") as started:
            centre.waits_for(25)
            stop_as_the_unit_does(started)
    assert centre.keys() == list(range(1, 26))


def _port(text: str) -> str:
    """Return the host and port in an SFTP URL."""
    found = re.search(r"127\.0\.0\.1:\d+", text)
    assert found is not None
    return found[0]


def as_published(reading: dict[str, Any]) -> Row:
    """Return the publication to which a row of the readings table belongs."""
    measured, received = (moment(reading[name]) for name in ("time", "received"))
    record = {-2: f"{reading['device']}:", 0: reading["name"], 1: reading["unit"]}
    payload = cbor2.dumps([{**record, 2: reading["value"], -3: int(measured.timestamp())}])
    one = row(
        reading["device"],
        reading["sequence"],
        reading["incarnation"],
        payload,
        int(received.timestamp()) * 1_000_000,
    )
    return (*one[:4], reading["topic"], *one[5:])


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.soak
@pytest.mark.spark
def test_one_reading_looks_like_this_and_is_read_in_three_lines_each_way(
    spark: "SparkSession", tmp_path: Path
) -> None:
    shown = json.loads(BLOCKS["json", "reading"])
    job = Job(spark, tmp_path)
    land(job.landing, shown["gateway"], 1, [as_published(shown)])
    job.take()
    (found,) = DeltaTable(f"{job.publications}_readings").to_pyarrow_table().to_pylist()
    assert found | {name: moment(shown[name]) for name in ("time", "received")} == found
    assert {name: found[name] for name in shown if name not in ("time", "received")} == {
        name: value for name, value in shown.items() if name not in ("time", "received")
    }
    assert list(found) == list(shown)
    for way in ("spark", "duckdb", "pandas"):
        text = BLOCKS["python", way].replace("/srv/lake", str(job.publications.parent))
        assert len(text.split("\n")) - text.count("\n\n") - 1 == 3
        told = StringIO()
        with redirect_stdout(told):
            exec(text, {"spark": spark})
        assert "adc0" in told.getvalue(), way
        assert "3.3" in told.getvalue(), way
