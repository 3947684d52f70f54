"""The single thread that writes the store while a gateway runs.

In: commits, in order. Out: a callback when each is on disk. The thread holds no state of the
broker. If the disk is full, a commit is written into the reserve (`space.py`). If a commit fails
for another reason (no reserve left, input/output error), the thread tries it again until it
succeeds or the writer is stopped: callers keep waiting, and no acknowledgement is sent without a
commit.

A commit that meets an internal error or a damaged database is retried in the same way. The owner of
the writer gets the error by the callback `failed`, and ends the process. Such retries do not count
as progress, so the watchdog ends the process if the owner does not.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, perf_counter
from typing import Any

from gateway.broker.delivery import Load, Order
from gateway.broker.spool import Oldest
from gateway.broker.store_rows import Commit
from gateway.store import run_marks
from gateway.store.apply import apply
from gateway.store.checkpoint import Checkpointer
from gateway.store.generation import Generation
from gateway.store.queue_reads import collect, load
from gateway.store.references import note_flows
from gateway.store.row_checks import SpoolChecks
from gateway.store.schema import FILE, connect, leave_log
from gateway.store.space import Space
from gateway.store.times import CommitTimes
from gateway.store.uptime import save_axis
from gateway.system.causes import cause
from gateway.system.jobs import LOOP_S, Job

log = logging.getLogger(__name__)

RETRY_S = 1.0
READS = 10
"""Number of attempts to read the rows of an order before the order fails with a disk error."""
_NO_SPACE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)


class Writer:
    """The writer. All callbacks run on its thread. done: called with the number of a commit that is
    on disk. failed: called with a commit's error before a retry. landed: called after
    `look_for_landed`, with the id and the arrival of the oldest row in the spool; without a row,
    with the next id and None. times: durations of the commits so far. space: free space on the
    disk.
    """

    def __init__(
        self,
        folder: Path,
        done: Callable[[int], None],
        failed: Callable[[Exception], None],
        landed: Callable[[int, Oldest | None], None],
    ) -> None:
        self.times = CommitTimes()
        self._folder = folder
        self._path = folder / FILE
        self._database = connect(self._path)
        self._database.execute("PRAGMA wal_autocheckpoint=0")
        self.space = Space(folder, self._database)
        self._generation = Generation(folder, self._database)
        self._checks = SpoolChecks()
        self._done = done
        self._failed = failed
        self._landed = landed
        self._orders: SimpleQueue[Commit | Callable[[sqlite3.Connection], None] | None] = (
            SimpleQueue()
        )
        self._stopping = threading.Event()
        self._gave_up = False
        self._busy_since: float | None = None
        self._checkpointer = Checkpointer(self._path, self._orders.put)
        self._looking = Job("space", "the free space of the disk is not measured", LOOP_S)
        self._renewing = Job(
            "generation", "the file with the store's generation is not updated", LOOP_S
        )
        self._summing = Job("checks", "the checks of the spool's rows are not saved", LOOP_S)
        self._counting = Job("landed", "the landed rows of the spool are not counted", LOOP_S)
        self.jobs: list[Job] = [
            self._checkpointer.job,
            self._looking,
            self._renewing,
            self._summing,
            self._counting,
        ]
        self._thread = threading.Thread(target=self._run, name="store-writer")
        self._thread.start()

    @property
    def stalled_s(self) -> float:
        """Seconds since the writer began its present task, or last retried it after an error of the
        disk; 0 while the writer is idle. Any thread may read it.
        """
        since = self._busy_since
        return 0.0 if since is None else monotonic() - since

    def submit(self, commit: Commit) -> None:
        self._orders.put(commit)

    def carry_out(self, order: Order, answer: Callable[[Order, Any], None]) -> None:
        """Read the rows that an order names, after all commits submitted before it. answer: called
        on the writer's thread with the order and the rows. An error that may be temporary is
        retried, up to `READS` attempts in all. If the read still fails, or fails with another
        error, `answer` gets the exception in place of the rows. If the writer is stopped between
        two attempts, `answer` is not called.
        """

        def read(database: sqlite3.Connection) -> None:
            for tries in range(1, READS + 1):
                rows: Any
                try:
                    rows = (
                        load(database, order)
                        if isinstance(order, Load)
                        else collect(database, order)
                    )
                except Exception as error:
                    if tries < READS and _passes(error):
                        log.error("the store cannot be read (%s); trying again", error)
                        if self._stopping.wait(RETRY_S):
                            return
                        continue
                    rows = error
                answer(order, rows)
                return

        self._orders.put(read)

    def look_for_landed(self) -> None:
        """Request a call of `landed`. The uplink is another process, so this process has to look
        whether the uplink has deleted rows.
        """
        self._orders.put(self._look)

    def look_for_space(self) -> None:
        """Request the writer's regular work. A part of this work is to measure the free disk space,
        because other programs use the disk, too. Call this about every second.
        """
        self._orders.put(self._look_around)

    def stop(self, axis: float, utc: int | None) -> None:
        """Finish the submitted commits, save the position of the time axis, and stop. If a commit
        keeps failing, it and all later ones are dropped, and the position is not saved. axis:
        position in seconds. utc: µs since 1970, or None.
        """
        self._stopping.set()
        self._orders.put(None)
        self._thread.join()
        self._checkpointer.stop()
        with contextlib.suppress(sqlite3.Error, OSError):
            if not self._gave_up:
                save_axis(self._database, int(axis * 1000), utc)
                self._checks.flush(self._database)
                note_flows(self._database)
                run_marks.end(self._database)
                self._generation.change()
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._database.close()
        leave_log(self._path)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            self._busy_since = monotonic()
            if not isinstance(order, Commit):
                self._read(order)
            elif self._gave_up:
                # a commit holds the changes since the previous one, and needs that one in the store
                continue
            elif self._write(order):
                with _noted(self._looking):
                    self.space.look()
                self._checkpointer.committed()
                # last: it wakes the event loop, which would wait for the interpreter lock
                self._done(order.number)
                self._checkpointer.keep_bound(self._database)
            else:
                self._gave_up = True
            self._busy_since = None

    def _read(self, order: Callable[[sqlite3.Connection], None]) -> None:
        try:
            order(self._database)
        except Exception:
            log.exception("the store's thread dropped a task after an internal error")

    def _look_around(self, _: sqlite3.Connection) -> None:
        with _noted(self._looking):
            self.space.look()
        with _noted(self._renewing):
            self._generation.look()
        with _noted(self._summing):
            if self._checks.due:
                self._checks.flush(self._database)
        self._checkpointer.committed()

    def _look(self, database: sqlite3.Connection) -> None:
        with _noted(self._counting):
            row = database.execute(
                "SELECT id, boot, monotonic, received FROM spool ORDER BY id LIMIT 1"
            ).fetchone()
            if row is not None:
                self._landed(row[0], Oldest(*row[1:]))
                return
            (newest,) = database.execute("SELECT id FROM spool_last").fetchone()
            self._landed(newest + 1, None)

    def _write(self, commit: Commit) -> bool:
        tries = 0
        while True:
            begin = perf_counter()
            try:
                self.times.sync.observe(apply(self._database, commit, self._checks))
            except Exception as error:
                self.times.failures += 1
                if getattr(error, "sqlite_errorcode", None) in _NO_SPACE and self.space.release():
                    continue
                self.times.error = str(error) or type(error).__name__
                self._failed(error)
                if not tries:
                    _say(error, self._folder)
                tries += 1
                if isinstance(error, sqlite3.Error) and not is_damage(error):
                    self._busy_since = monotonic()
                if self._stopping.wait(RETRY_S):
                    return False
            else:
                if tries:
                    log.warning("the store accepts data again; failed commits: %d", tries)
                self.times.error = None
                self.times.commit.observe(perf_counter() - begin)
                return True


@contextlib.contextmanager
def _noted(job: Job) -> Iterator[None]:
    """Run a block for a job, and note its success in the job. A disk or database error is noted in
    the job, too, and not raised.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        job.fail(error)
    else:
        job.succeed()


def _passes(error: Exception) -> bool:
    """Whether a read error may be temporary: a fault of the disk, lack of memory, another program's
    lock.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
    )


def is_damage(error: Exception) -> bool:
    """Whether SQLite reports damage of the database itself, against which retries do not help."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _say(error: Exception, folder: Path) -> None:
    if not isinstance(error, sqlite3.Error):
        log.error("a commit met an internal error; nothing is acknowledged", exc_info=error)
        return
    name = getattr(error, "sqlite_errorname", "no code of SQLite")
    if is_damage(error):
        log.error(
            "the store is damaged (%s, %s). Nothing more is acknowledged, and the gateway stops."
            " See: onceway store check",
            error,
            name,
        )
        return
    reason, todo = cause(error, folder)
    if not isinstance(error, sqlite3.OperationalError):
        todo = "Stop the gateway and run: onceway store check"
    log.error(
        "the store accepts no data: %s (%s, %s). Nothing is acknowledged until it does. %s",
        reason,
        error,
        name,
        todo,
    )
