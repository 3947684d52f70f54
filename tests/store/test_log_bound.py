"""The size of the write-ahead log (WAL) has a bound, whatever is written and read."""

import logging
import queue
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest

from gateway.broker.store_rows import Commit, SpoolRow
from gateway.store import checkpoint
from gateway.store.checkpoint import WAL_WARN_BYTES
from gateway.store.log_readers import log_readers
from gateway.store.schema import (
    BUSY_TIMEOUT_S,
    FILE,
    WAL_BYTES,
    WAL_LIMIT,
    connect,
    connect_to_read,
    make_folder,
    open_store,
)
from gateway.store.writer import Writer
from gateway.uplink.spool import Spool

SMALL, LARGE = 30, 10_000
DONE_S = 60


class Store:
    """A writer on a folder. largest: largest size of the WAL after a commit, in bytes."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        open_store(folder, "test").close()
        self.folder = folder
        self.largest = 0
        self.rows = 0
        self._numbers = 0
        self._done: queue.Queue[int] = queue.Queue()
        self.writer = Writer(folder, self._done.put, lambda error: None, lambda lowest, old: None)

    @property
    def log_bytes(self) -> int:
        return (self.folder / f"{FILE}-wal").stat().st_size

    def commit(self, size: int, rows: int = 1) -> None:
        self._numbers += 1
        commit = Commit(self._numbers)
        commit.spool = [self._row(size) for _ in range(rows)]
        self.writer.submit(commit)
        assert self._done.get(timeout=DONE_S) == self._numbers
        self.largest = max(self.largest, self.log_bytes)

    def _row(self, size: int) -> SpoolRow:
        self.rows += 1
        return self.rows, None, None, None, "c", "t", bytes(size), 1, self.rows, None

    def settle(self) -> None:
        """Wait until the writer has no more work."""
        idle: queue.Queue[None] = queue.Queue()
        self.writer._orders.put(lambda database: idle.put(None))
        idle.get(timeout=DONE_S)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.writer.stop(0.0, None)


def rows_of(folder: Path) -> int:
    with closing(connect_to_read(folder / FILE)) as database:
        return int(database.execute("SELECT count(*) FROM spool").fetchone()[0])


def small_then_large(store: Store) -> None:
    for _ in range(1500):
        store.commit(SMALL)
    for _ in range(1500):
        store.commit(LARGE, 10)


def large_then_small(store: Store) -> None:
    for _ in range(300):
        store.commit(LARGE, 10)
    for _ in range(1500):
        store.commit(SMALL)


def larger_and_larger(store: Store) -> None:
    for rows in range(1, 100, 3):
        store.commit(LARGE, rows)


@pytest.mark.parametrize("write", [small_then_large, large_then_small, larger_and_larger])
def test_log_stays_within_its_bound(store: Store, write: Callable[[Store], None]) -> None:
    write(store)
    assert store.largest <= WAL_LIMIT + 100 * LARGE * 1.3
    assert rows_of(store.folder) == store.rows


def test_transaction_larger_than_the_bound_leaves_no_large_log(store: Store) -> None:
    store.commit(LARGE, 3 * WAL_LIMIT // LARGE)
    store.settle()
    assert store.log_bytes <= WAL_LIMIT
    store.commit(SMALL)
    assert rows_of(store.folder) == store.rows


def test_log_that_an_older_version_left_is_cut_with_the_first_commit(tmp_path: Path) -> None:
    make_folder(tmp_path)
    with closing(open_store(tmp_path, "test")) as database:
        database.execute("PRAGMA wal_autocheckpoint=0")
        for number in range(1, 4):
            database.execute(
                "INSERT INTO spool VALUES (?, NULL, NULL, NULL, 'c', 't', zeroblob(?), 1, 1, NULL)",
                (number, WAL_LIMIT),
            )
        store = Store(tmp_path)
        assert store.log_bytes > 3 * WAL_LIMIT
    store.rows = 3
    store.commit(SMALL)
    store.settle()
    assert store.log_bytes <= WAL_LIMIT
    store.writer.stop(0.0, None)


def test_log_is_copied_before_the_writer_has_to_wait(store: Store) -> None:
    """If a checkpoint is at least as fast as the writer, the writer never waits."""
    for _ in range(3 * WAL_BYTES // LARGE):
        store.commit(LARGE)
        store.writer._checkpointer.idle.wait(DONE_S)
        store.settle()
    assert store.largest < WAL_LIMIT
    assert store.writer._checkpointer.waits == 0


def test_reader_that_keeps_the_log_open_is_logged_once_and_loses_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A backup, or a person's sqlite3 with an open transaction, prevents every checkpoint."""
    caplog.set_level(logging.INFO)
    with closing(connect_to_read(store.folder / FILE)) as reader:
        store.commit(SMALL)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM spool").fetchone() == (1,)
        while store.log_bytes <= 1.5 * WAL_WARN_BYTES:
            store.commit(LARGE, 100)
        assert reader.execute("SELECT count(*) FROM spool").fetchone() == (1,)
        said = [line for line in caplog.messages if "write-ahead log" in line]
        assert len(said) == 1
        assert f"{WAL_WARN_BYTES // 1_000_000} MB" in said[0]
        reader.execute("ROLLBACK")
    store.commit(LARGE, 100)
    store.settle()
    store.commit(SMALL)
    assert store.log_bytes <= WAL_LIMIT
    said = [line for line in caplog.messages if "write-ahead log" in line]
    assert len(said) == 2
    assert rows_of(store.folder) == store.rows


HOLD = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN")
database.execute("SELECT count(*) FROM spool").fetchone()
print("held", flush=True)
sys.stdin.read()
"""


def test_program_that_holds_the_log_is_named(store: Store) -> None:
    store.commit(SMALL)
    job = store.writer.jobs[0]
    assert (job.problem, log_readers(store.folder / FILE)) == (None, [])
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.folder / FILE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        store.commit(LARGE, WAL_WARN_BYTES // LARGE + 100)
        store.commit(SMALL)
        store.settle()
        assert job.problem is not None
        assert f"process {other.pid} (python" in job.problem
        assert f"{WAL_WARN_BYTES // 1_000_000} MB" in job.problem
        other.communicate("")
    store.commit(LARGE, 1000)
    store.settle()
    assert job.problem is None
    assert store.log_bytes <= WAL_LIMIT


COPY = """
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    fcntl.lockf(index, fcntl.LOCK_EX, 1, 121)  # WAL_CKPT_LOCK (https://www.sqlite.org/walformat.html)
    print("copying", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("ends", [True, False])
def test_checkpoint_of_another_program_is_waited_for_and_then_stops_no_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """SQLite itself does not wait for it. A backup or the uplink may make one at any time. ends:
    whether the other program's checkpoint ends while the writer waits.
    """
    store.commit(SMALL)
    copier = store.writer._checkpointer
    polls = queue.Queue[float]()

    def poll(seconds: float) -> None:
        polls.put(seconds)
        if ends and other.poll() is None:
            other.communicate("")

    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=monotonic, sleep=poll))
    monkeypatch.setattr(checkpoint, "_OTHERS_S", DONE_S if ends else 0.05)
    with subprocess.Popen(
        [sys.executable, "-c", COPY, str(store.folder / f"{FILE}-shm")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "copying\n"
        store.commit(LARGE, WAL_LIMIT // LARGE + 10)
        store.settle()
        assert (copier.waits, polls.empty()) == (1, False)
        assert (store.log_bytes == 0) == ends
        store.commit(SMALL)
        store.settle()
        assert copier.waits == 1, "the writer does not wait at each commit"
        if not ends:
            other.communicate("")
    store.commit(LARGE, WAL_BYTES // LARGE + 10)
    store.settle()
    assert store.log_bytes <= WAL_LIMIT
    assert store.writer.jobs[0].problem is None
    assert rows_of(store.folder) == store.rows


def test_truncation_that_fails_is_a_problem_and_stops_no_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        """The writer's connection, which cannot truncate the log."""

        def execute(self, statement: str) -> object:
            if "TRUNCATE" in statement:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_TRUNCATE
                raise error
            return store.writer._database.execute(statement)

    copier, job = store.writer._checkpointer, store.writer.jobs[0]
    cut = copier._cut
    monkeypatch.setattr(job, "bound_s", 0.0)
    with monkeypatch.context() as broken:
        broken.setattr(copier, "_cut", lambda _: cut(Broken()))  # type: ignore[arg-type]
        store.commit(LARGE, WAL_LIMIT // LARGE + 10)
        store.settle()
        assert job.error == "the disk fails: it reports an error: disk I/O error"
        store.commit(SMALL)
    (timeout,) = store.writer._database.execute("PRAGMA busy_timeout").fetchone()
    assert timeout == BUSY_TIMEOUT_S * 1000, "other statements wait as long as before"
    store.commit(LARGE, WAL_BYTES // LARGE + 10)
    store.settle()
    assert store.log_bytes <= WAL_LIMIT
    assert job.problem is None
    assert rows_of(store.folder) == store.rows


def test_checkpoint_that_fails_is_a_problem_and_is_tried_again_without_commits(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The gateway's commits succeed. Only the checkpoint, which copies the log into the database,
    fails.
    """

    def fails(_: sqlite3.Connection) -> int:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    job = store.writer.jobs[0]
    monkeypatch.setattr(checkpoint, "checkpoint", fails)
    monkeypatch.setattr(job, "bound_s", 0.0)
    # below WAL_LIMIT, from which on the writer itself makes checkpoints
    for _ in range(WAL_BYTES * 5 // 4 // LARGE):
        store.commit(LARGE)
    store.writer._checkpointer.idle.wait(DONE_S)
    store.settle()
    assert job.problem is not None
    assert "the disk fails" in job.problem
    assert sum("cannot be copied" in line for line in caplog.messages) == 1
    monkeypatch.undo()
    while job.error is not None:
        store.writer.look_for_space()
        store.writer._checkpointer.idle.wait(DONE_S)
        store.settle()
    assert "this problem is over" in caplog.messages[-1]


def test_short_readers_do_not_make_the_log_grow(store: Store) -> None:
    with closing(connect_to_read(store.folder / FILE)) as reader:
        for _ in range(500):
            store.commit(LARGE, 10)
            reader.execute("SELECT count(*) FROM meta").fetchone()
    assert store.largest <= WAL_LIMIT + 10 * LARGE * 1.3


def test_other_connections_copy_the_log_as_seldom_as_the_writer(tmp_path: Path) -> None:
    """The uplink and the database of copies have no checkpoint thread. They use SQLite's automatic
    checkpoint, for as many pages as fit in WAL_BYTES.
    """
    make_folder(tmp_path)
    open_store(tmp_path, "test").close()
    with closing(connect(tmp_path / FILE)) as database:
        (page,) = database.execute("PRAGMA page_size").fetchone()
        (pages,) = database.execute("PRAGMA wal_autocheckpoint").fetchone()
    assert pages * (page + 24) <= WAL_BYTES < (pages + 1) * (page + 24)


def test_uplink_that_empties_a_spool_alone_keeps_the_log_short(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(30):
        store.commit(LARGE, 100)
    store.writer.stop(0.0, None)
    with closing(Spool(tmp_path)) as spool, closing(sqlite3.connect(tmp_path / FILE)):
        largest = 0
        for number in range(3000):
            spool.put({"test": f"{number} {'x' * LARGE}"})
            largest = max(largest, store.log_bytes)
    assert largest <= WAL_LIMIT
