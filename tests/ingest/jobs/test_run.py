"""The steps of the jobs around Spark: start, wait, log lines, notes. Queries, sinks and
tables here only answer, so no Java runs.
"""

import argparse
import json
import logging
import signal
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException

from gateway.errors import OncewayError
from gateway.ingest.delta.causes import explained
from gateway.ingest.jobs import checkpoint, session, stream, upkeep
from gateway.ingest.jobs.checkpoint import Torn
from gateway.ingest.jobs.script import run_script
from gateway.ingest.report import stopped
from tests.ingest.batches import land, row
from tests.ingest.files import Files

NOTHING: Any = None


class Query:
    """A query that ends at look number `looks`, or with `failure`. A stop ends it."""

    lastProgress = None
    recentProgress = ()

    def __init__(self, looks: int = 1, failure: Exception | None = None, busy: int = 0) -> None:
        self.looks = looks
        self.failure = failure
        self.busy = busy
        self.stops = 0

    def awaitTermination(self, _: float) -> bool:
        self.looks -= 1
        if self.looks <= 0 and self.failure is not None:
            raise self.failure
        return self.looks <= 0

    @property
    def status(self) -> dict[str, bool]:
        self.busy -= 1
        return {"isTriggerActive": self.busy >= 0}

    def exception(self) -> Exception | None:
        return self.failure if self.looks <= 0 else None

    def stop(self) -> None:
        assert self.busy < 0, "the stop would interrupt the micro-batch"
        self.stops += 1
        self.looks = 0


class Sink:
    """A sink after some micro-batches. called: names of the methods called."""

    failure = None
    counters = None

    def __init__(self, micro_batches: int = 0) -> None:
        self.micro_batches = micro_batches
        self.progress = SimpleNamespace(feeds={"site/0a1b2c3d": 7})
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Callable[[], None]:
        return lambda: self.called.append(name)


@pytest.fixture
def options(tmp_path: Path) -> argparse.Namespace:
    land(tmp_path / "landing", "site", 1, [row("dev", 1)])
    places = [f"--{name}={tmp_path / name}" for name in ("landing", "table", "checkpoint")]
    return stream.parse_arguments(places)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="onceway.ingest")
    monkeypatch.setattr(stream, "ENDED_S", 0.0)


def follow(
    options: argparse.Namespace, query: Any, sink: Any, stopping: threading.Event | None = None
) -> None:
    stream._follow(NOTHING, options, query, sink, stopping or threading.Event())


@pytest.mark.parametrize(("micro_batches", "idle"), [(0, True), (2, False)])
def test_end_without_a_micro_batch_says_what_the_table_has(
    options: argparse.Namespace, caplog: pytest.LogCaptureFixture, micro_batches: int, idle: bool
) -> None:
    sink = Sink(micro_batches)
    follow(options, Query(3), sink)
    said = "nothing new: the table has 7 batches of 1 gateway"
    assert (said in caplog.messages) is idle
    assert sink.called[0] == "report_running"
    assert sink.called[-3:] == ["save", "forget_stop", "note_end"]
    assert sink.called.count("forget_stop") == (1 if idle else 2)


def test_batches_in_quarantine_are_tried_again_now_and_then(
    options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    monkeypatch.setattr(stream, "_try_again", lambda *_: tries.append(1))
    follow(options, Query(3), Sink())
    assert not tries
    monkeypatch.setattr(stream, "TRY_AGAIN_S", -1.0)
    follow(options, Query(3), Sink())
    assert len(tries) == 2


@pytest.mark.parametrize("failure", [None, StreamingQueryException("interrupted")])
def test_stop_waits_for_the_running_micro_batch_and_its_interruption_is_no_failure(
    options: argparse.Namespace, caplog: pytest.LogCaptureFixture, failure: Exception | None
) -> None:
    """After an interrupted micro-batch, nothing is saved: the next start reads the table."""
    stopping, sink, query = threading.Event(), Sink(1), Query(9, failure, busy=3)
    stopping.set()
    follow(options, query, sink, stopping)
    assert query.stops == 1
    assert ("note_end" in sink.called) is (failure is None)
    assert ("the next start repeats it" in caplog.text) is (failure is not None)


@pytest.mark.parametrize("settle", [0.0, 600.0])
def test_half_copied_batches_are_tried_again_only_with_settle(
    options: argparse.Namespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settle: float,
) -> None:
    options.settle, calls = settle, list[str]()

    def take_whole(*_: object) -> None:
        calls.append("whole")
        raise TimeoutError

    monkeypatch.setattr(stream, "try_again", lambda *_: calls.append("unreadable"))
    monkeypatch.setattr(stream, "take_whole", take_whole)
    sink: Any = SimpleNamespace(signed=True, locations={"publications": "/srv/table"})
    stream._try_again(NOTHING, options, sink)
    assert calls == (["unreadable", "whole"] if settle else ["unreadable"])
    assert ("the landing place cannot be read now: TimeoutError" in caplog.text) is bool(settle)


@pytest.mark.parametrize("used", [False, True])
def test_only_a_checkpoint_in_use_is_blamed_for_a_failed_start(
    options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    aside, begun = list[str](), list[int]()

    def begin(*_: object) -> str:
        begun.append(1)
        if len(begun) == 1:
            raise PySparkException("[STREAM_FAILED] no such offset")
        return "the query"

    for name in ("refuse_foreign", "make_fit"):
        monkeypatch.setattr(stream, name, lambda *_: None)
    monkeypatch.setattr(stream, "prepare", lambda *_: (Sink(), {}))
    monkeypatch.setattr(stream, "is_used", lambda *_: used)
    monkeypatch.setattr(stream, "set_aside", lambda _, url, why: aside.append(f"{url}: {why}"))
    monkeypatch.setattr(stream, "_begin", begin)
    if used:
        assert stream.start(NOTHING, options)[0] == "the query"
        (line,) = aside
        assert line.startswith(f"{options.checkpoint}: Spark does not start with this")
    else:
        with pytest.raises(PySparkException):
            stream.start(NOTHING, options)
        assert not aside


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """Return the handlers of signals that a job sets. `_run` opens no session."""
    found: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", found.__setitem__)
    monkeypatch.setattr(stream, "open_session", lambda _: None)
    monkeypatch.setattr(stream, "close_session", lambda _: None)
    monkeypatch.setattr(stream, "start", lambda *_: (Query(), Sink()))
    return found


@pytest.mark.parametrize("stops", [True, False])
def test_java_that_ends_first_after_a_stop_request_is_no_failure(
    options: argparse.Namespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    handlers: dict[int, Any],
    stops: bool,
) -> None:
    noted: list[str] = []

    def ended(*_: object) -> None:
        if stops:
            handlers[signal.SIGTERM](signal.SIGTERM, None)
            assert handlers[signal.SIGTERM] is signal.SIG_DFL, "a second signal ends at once"
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(stream, "_follow", ended)
    monkeypatch.setattr(stream, "_note_stop", lambda _, __, why: noted.append(why))
    if stops:
        stream._run(options)
        assert "Java got the stop request first" in caplog.text
    else:
        with pytest.raises(OncewayError, match="Java, in which Spark runs, has ended"):
            stream._run(options)
    assert bool(noted) is not stops


def test_ingest_waits_for_the_first_batch_unless_it_runs_once(
    options: argparse.Namespace,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    handlers: dict[int, Any],
) -> None:
    options.landing = str(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    stream._run(options)
    assert "no gateway has landed a batch at this landing place. The ingest waits" in caplog.text
    options.available_now = True
    with pytest.raises(OncewayError, match="no gateway has landed a batch"):
        stream._run(options)


@pytest.mark.parametrize(
    ("location", "exists", "noted"),
    [("s3a://lake/table", True, True), ("s3a://lake/table", False, False), (None, True, False)],
)
def test_reason_of_an_end_is_noted_beside_a_table_on_another_file_system(
    options: argparse.Namespace,
    monkeypatch: pytest.MonkeyPatch,
    location: str | None,
    exists: bool,
    noted: bool,
) -> None:
    files = Files()
    found = SimpleNamespace(location=lambda: location, exists=lambda: exists)
    monkeypatch.setattr(stream, "Table", lambda *_: found)
    monkeypatch.setattr(stream, "open_folder", lambda *_: files)
    files[stream.job.FILE] = b"{}"
    options.table = "s3a://lake/table"
    stream._note_stop(NOTHING, options, "a full disk")
    assert (stopped.FILE in files) is noted
    assert (stream.job.FILE in files) is not noted
    if noted:
        assert "a full disk" in str(stopped.why(files))

    def gone(*_: object) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(stream, "Table", gone)
    stream._note_stop(NOTHING, options, "Java has ended")


def test_held_feeds_are_some_names_and_an_exit_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "held.json"
    assert stream._say_held(file) == 0
    file.write_text("[]")
    assert stream._say_held(file) == 0
    file.write_text(json.dumps([f"site-{one}/0" for one in range(stream.SHOWN + 2)]))
    assert stream._say_held(file) == 5
    assert "site-4/0 and 2 more. `onceway ingest report` says why" in caplog.text


def test_time_that_no_clock_has_is_refused_by_the_job_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as raised:
        stream.parse_arguments(["--every", "soon"])
    assert raised.value.code == 2
    assert "'soon' is not a time" in capsys.readouterr().err


def test_ctrl_c_before_spark_runs_has_its_own_exit_code() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as raised:
        run_script(interrupted)
    assert raised.value.code == 130


class UpkeepTable:
    def __init__(self, _: object, name: str, __: object) -> None:
        self.name = name

    def exists(self) -> bool:
        return True

    def refuse_others(self) -> None:
        pass


@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("command", ["release", "compact", "summarise", "expire"])
def test_upkeep_runs_the_job_that_was_asked_for(
    options: argparse.Namespace, monkeypatch: pytest.MonkeyPatch, command: str, damaged: int
) -> None:
    calls: list[tuple[Any, ...]] = []

    def called(name: str) -> Callable[..., int]:
        return lambda *arguments: calls.append((name, *arguments)) or damaged  # type: ignore[func-returns-value]

    for name in ("release", "compact", "summarise", "expire"):
        monkeypatch.setattr(upkeep, name, called(name))
    for name in ("open_session", "close_session", "mend"):
        monkeypatch.setattr(upkeep, name, lambda *_: None)
    monkeypatch.setattr(upkeep, "table_kind", lambda *_: UpkeepTable)
    sink = SimpleNamespace(locations={"publications": options.table}, signed=True)
    monkeypatch.setattr(upkeep, "open_sink", lambda *_: sink)
    more = {"release": ["--landing", options.landing], "expire": ["--older-than", "2d"]}
    words = ["--table", options.table, command, *more.get(command, [])]
    before = datetime.now(UTC) - timedelta(days=2)
    if command == "release" and damaged:
        with pytest.raises(OncewayError, match="still damaged") as raised:
            upkeep.run(upkeep.parse_arguments(words))
        assert str(raised.value).startswith(f"{options.table}_quarantine: {damaged} batch")
    else:
        upkeep.run(upkeep.parse_arguments(words))
    ((name, _, *arguments),) = calls
    assert name == command
    if command == "expire":
        assert arguments[1].name == f"{options.table}_readings"
        assert before <= arguments[2] <= before + timedelta(minutes=5)
    if command == "compact":
        suffixes = ("", "_readings", "_quarantine", "_conflicts", "_devices", "_quality")
        assert [one.name for one in arguments] == [f"{options.table}{one}" for one in suffixes]


def test_spark_connect_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example")
    with pytest.raises(OncewayError, match="does not run with Spark Connect") as raised:
        session.open_session()
    assert "Unset SPARK_REMOTE" in str(explained(raised.value))


def test_package_for_the_workers_has_all_that_the_source_imports(tmp_path: Path) -> None:
    """The workers have the packages of others, but not Onceway."""
    package = session._package()
    libraries = sysconfig.get_path("purelib")
    code = (
        f"import sys; sys.path[:0] = [{str(package)!r}, {libraries!r}]\n"
        "import gateway.ingest.jobs.source, gateway.ingest.sink.data_files\n"
        "import gateway.ingest.payload.decoded; print(gateway.__file__)"
    )
    line = [sys.executable, "-S", "-c", code]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"{package}/gateway/__init__.py", done.stderr
    assert not [name for name in zipfile.ZipFile(package).namelist() if "/web/" in name]


class Checkpoint(Files):
    """A checkpoint in an object store. It has files only."""

    def __str__(self) -> str:
        return "s3a://lake/checkpoint"

    def entries(self) -> dict[str, bool]:
        return dict.fromkeys(self, False)


def test_checkpoint_on_another_file_system_is_looked_at_without_its_disk() -> None:
    found: Any = Checkpoint({"metadata": b'{"id":"a"}'})
    checkpoint._refuse_obstacles(found, "s3a://lake/checkpoint")
    checkpoint._metadata(found)
    found["offsets"] = b""
    with pytest.raises(Torn, match="s3a://lake/checkpoint/offsets is not a folder"):
        checkpoint._refuse_obstacles(found, "s3a://lake/checkpoint")


@pytest.mark.parametrize("text", [b"[]", b'{"id":""}', b'{"id":"a"}\n{"id":"b"}', b"{}", b"5"])
def test_checkpoint_that_names_no_stream_is_torn(text: bytes) -> None:
    found: Any = Checkpoint({"metadata": text})
    with pytest.raises(Torn, match="metadata names no stream"):
        checkpoint._metadata(found)
