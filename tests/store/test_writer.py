"""The writer on a disk that fails: it acknowledges only stored messages, and writes no commit after
one that is missing.
"""

import errno
import queue
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from gateway.broker.delivery import Load
from gateway.broker.store_rows import Commit
from gateway.store import generation, row_checks
from gateway.store import writer as module
from gateway.store.generation import last_generation
from gateway.store.schema import FILE, connect_to_read, make_folder, open_store
from gateway.store.space import NAME
from gateway.store.times import BOUNDS_S
from gateway.store.writer import Writer


class Disk:
    """A replacement of `apply` that fails for the commits in `broken`, and records the numbers of
    the others.
    """

    def __init__(self) -> None:
        self.broken: set[int] = set()
        self.error: Exception = sqlite3.OperationalError("disk I/O error")
        self.written: list[int] = []

    def apply(self, database: sqlite3.Connection, commit: Commit, _: object = None) -> float:
        if commit.number in self.broken:
            raise self.error
        self.written.append(commit.number)
        return 0.5


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(module, "apply", disk.apply)
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    return disk


@pytest.fixture
def acknowledged() -> "queue.Queue[int]":
    return queue.Queue()


@pytest.fixture
def failures() -> "queue.Queue[Exception]":
    return queue.Queue()


@pytest.fixture
def writer(
    tmp_path: Path,
    disk: Disk,
    acknowledged: "queue.Queue[int]",
    failures: "queue.Queue[Exception]",
) -> Writer:
    make_folder(tmp_path)
    open_store(tmp_path, "test").close()
    return Writer(
        tmp_path, done=acknowledged.put, failed=failures.put, landed=lambda lowest, oldest: None
    )


def test_a_commit_that_fails_is_tried_until_it_is_on_disk(
    writer: Writer,
    disk: Disk,
    acknowledged: "queue.Queue[int]",
    failures: "queue.Queue[Exception]",
) -> None:
    disk.broken = {1}
    writer.submit(Commit(1))
    failures.get(timeout=10)
    failures.get(timeout=10)
    assert acknowledged.empty()
    disk.broken = set()
    assert acknowledged.get(timeout=10) == 1
    assert writer.times.failures >= 2
    assert (
        sum(writer.times.commit.counts),
        sum(writer.times.sync.counts),
        writer.times.sync.total,
    ) == (1, 1, 0.5)
    assert writer.times.sync.counts[BOUNDS_S.index(0.5)] == 1
    writer.stop(0.0, None)


def test_an_error_of_ours_ends_no_writer_and_counts_as_no_progress(
    writer: Writer,
    disk: Disk,
    acknowledged: "queue.Queue[int]",
    failures: "queue.Queue[Exception]",
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert writer.stalled_s == 0
    disk.broken, disk.error = {1}, OverflowError("Python int too large")
    writer.submit(Commit(1))
    for _ in range(3):
        assert failures.get(timeout=10) is disk.error
    assert writer.stalled_s >= 2 * module.RETRY_S
    assert acknowledged.empty()
    assert "a commit met an internal error" in caplog.text
    disk.broken = set()
    assert acknowledged.get(timeout=10) == 1
    writer.stop(0.0, None)
    assert writer.stalled_s == 0


def test_a_writer_that_tries_again_on_a_bad_disk_makes_progress(
    writer: Writer, disk: Disk, failures: "queue.Queue[Exception]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.2)
    disk.broken = {1}
    writer.submit(Commit(1))
    for _ in range(4):
        failures.get(timeout=10)
        assert writer.stalled_s < 0.5
    writer.stop(0.0, None)


def test_an_order_that_meets_an_error_of_ours_is_dropped_and_the_next_is_carried_out(
    writer: Writer, disk: Disk, acknowledged: "queue.Queue[int]"
) -> None:
    writer._orders.put(lambda database: 1 // 0)
    writer.submit(Commit(1))
    assert acknowledged.get(timeout=10) == 1
    writer.stop(0.0, None)


def test_commits_after_a_dropped_one_are_not_written(
    writer: Writer,
    disk: Disk,
    acknowledged: "queue.Queue[int]",
    failures: "queue.Queue[Exception]",
) -> None:
    """Commit 2 may refer to a message in commit 1. So if commit 1 fails, commit 2 is not written
    either.
    """
    disk.broken = {1}
    writer.submit(Commit(1))
    writer.submit(Commit(2))
    failures.get(timeout=10)
    writer.stop(0.0, None)
    assert disk.written == []
    assert acknowledged.empty()


def _error(
    code: int, kind: type[sqlite3.DatabaseError] = sqlite3.DatabaseError
) -> sqlite3.DatabaseError:
    error = kind("from a test")
    error.sqlite_errorcode = code
    return error


def test_commit_on_a_full_disk_takes_the_reserve_and_is_no_failure(
    writer: Writer,
    disk: Disk,
    acknowledged: "queue.Queue[int]",
    failures: "queue.Queue[Exception]",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another program has filled the disk since the free space was last measured."""

    def apply(database: sqlite3.Connection, commit: Commit, _: object = None) -> float:
        if (tmp_path / NAME).exists():
            raise _error(sqlite3.SQLITE_FULL, sqlite3.OperationalError)
        return disk.apply(database, commit)

    (tmp_path / NAME).write_bytes(bytes(1000))
    monkeypatch.setattr(module, "apply", apply)
    monkeypatch.setattr(module, "RETRY_S", 60)
    writer.submit(Commit(1))
    assert acknowledged.get(timeout=10) == 1
    assert failures.empty()
    assert writer.times.error is None
    writer.stop(0.0, None)


def test_commit_that_breaks_a_rule_of_the_store_advises_a_check(
    writer: Writer,
    disk: Disk,
    failures: "queue.Queue[Exception]",
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Room on the disk would not help."""
    disk.broken = {1}
    disk.error = _error(sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.IntegrityError)
    writer.submit(Commit(1))
    failures.get(timeout=10)
    writer.stop(0.0, None)
    assert "the store accepts no data: an error without a known cause" in caplog.text
    assert "Stop the gateway and run: onceway store check" in caplog.text


def test_stop_ends_the_tries_of_a_read_without_an_answer(
    writer: Writer, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, answers = threading.Event(), queue.Queue[object]()

    def load(database: sqlite3.Connection, order: Load) -> None:
        tried.set()
        raise _error(sqlite3.SQLITE_IOERR_READ)

    monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(module, "RETRY_S", 60)
    writer.carry_out(Load(1, 1), lambda order, rows: answers.put(rows))
    assert tried.wait(10)
    begin = time.monotonic()
    writer.stop(0.0, None)
    assert time.monotonic() - begin < 30
    assert answers.empty()


def test_regular_work_renews_the_generation_and_writes_old_checks(
    tmp_path: Path, acknowledged: "queue.Queue[int]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill may come at any time, so neither waits for the end of the gateway or for more rows."""

    def stored(query: str) -> object:
        with closing(connect_to_read(tmp_path / FILE)) as database:
            return database.execute(query).fetchone()[0]

    def work() -> None:
        done = threading.Event()
        writer.look_for_space()
        writer._orders.put(lambda _: done.set())
        assert done.wait(10)

    make_folder(tmp_path)
    open_store(tmp_path, "test").close()
    writer = Writer(tmp_path, acknowledged.put, lambda error: None, lambda lowest, oldest: None)
    commit = Commit(1)
    commit.spool = [(1, "d", 1, 1, "c", "t", b"1", 1, 1, None)]
    writer.submit(commit)
    acknowledged.get(timeout=10)
    work()
    assert (stored("SELECT count(*) FROM spool_check"), last_generation(tmp_path)) == (0, None)
    monkeypatch.setattr(generation, "EACH_S", 0.0)
    monkeypatch.setattr(row_checks, "EACH_S", 0.0)
    work()
    word = last_generation(tmp_path)
    assert word is not None
    assert str(stored("SELECT value FROM meta WHERE key = 'generation'")).split()[0] == word
    assert stored("SELECT first FROM spool_check") == 1
    work()
    assert last_generation(tmp_path) != word
    writer.stop(0.0, None)


@pytest.mark.parametrize(
    ("part", "call", "text"),
    [
        ("space", "look", "the free space of the disk is not measured"),
        ("_generation", "look", "the file with the store's generation is not updated"),
        ("_checks", "flush", "the checks of the spool's rows are not saved"),
    ],
)
def test_work_that_the_disk_refuses_is_a_problem_until_it_succeeds(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, part: str, call: str, text: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    def work() -> list[str]:
        done = threading.Event()
        writer.look_for_space()
        writer._orders.put(lambda _: done.set())
        assert done.wait(10)
        return [str(job.problem) for job in writer.jobs if job.problem]

    for job in writer.jobs:
        monkeypatch.setattr(job, "bound_s", 0.0)
    with monkeypatch.context() as broken:
        broken.setattr(type(writer._checks), "due", True)
        broken.setattr(getattr(writer, part), call, fails)
        (problem,) = work()
        assert text in problem
        assert "the disk or the file is read-only" in problem
    assert work() == []
    writer.stop(0.0, None)


@pytest.mark.parametrize(
    ("code", "tries"),
    [
        (sqlite3.SQLITE_IOERR_READ, 3),
        (sqlite3.SQLITE_BUSY, 3),
        (sqlite3.SQLITE_NOMEM, 3),
        (sqlite3.SQLITE_CORRUPT, 1),
        (sqlite3.SQLITE_ERROR, 1),
    ],
)
def test_read_is_tried_again_only_when_the_error_can_pass(
    writer: Writer,
    disk: Disk,
    acknowledged: "queue.Queue[int]",
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    tries: int,
) -> None:
    """The answer to a read that has failed for good is the error. The writer then goes on with
    commits.
    """
    assert disk.written == []
    monkeypatch.setattr(module, "READS", 3)
    error, tried = _error(code), list[float]()
    answers: queue.Queue[Exception] = queue.Queue()

    def load(database: sqlite3.Connection, order: Load) -> None:
        tried.append(writer.stalled_s)
        raise error

    monkeypatch.setattr(module, "load", load)
    writer.carry_out(Load(1, 1), lambda order, rows: answers.put(rows))
    writer.submit(Commit(1))
    assert answers.get(timeout=10) is error
    assert len(tried) == tries
    assert tried == sorted(tried), "a try is no progress for the watchdog"
    assert acknowledged.get(timeout=10) == 1
    writer.stop(0.0, None)
