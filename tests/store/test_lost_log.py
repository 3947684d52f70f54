"""If the write-ahead log is missing after a kill, the start reports it, and uses no row number
again.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.broker.store_rows import Commit
from gateway.store import run_marks, wal
from gateway.store.apply import apply
from gateway.store.check import check
from gateway.store.generation import why_other_generation
from gateway.store.recovery import recover
from gateway.store.schema import FILE, connect, make_folder, open_store
from gateway.store.writer import Writer
from gateway.uplink.spool import Spool


def rows(first: int, last: int) -> Commit:
    commit = Commit(1)
    commit.spool = [(n, "d", 1, n, "c", "t", b"1", 1, n, None) for n in range(first, last + 1)]
    return commit


def killed(folder: Path, to: Path) -> None:
    """Use a store in `folder` as a gateway does. Copy its files to `to` while it is open, as a kill
    leaves them.
    """
    make_folder(folder)
    with closing(open_store(folder, "site-7")) as database:
        recover(database, None, 16)
        apply(database, rows(1, 5))
    with closing(connect(folder / FILE)) as database:
        apply(database, rows(6, 9))
        shutil.copytree(folder, to)


def start(folder: Path) -> tuple[str | None, int]:
    """Start with a store. Return why it is another generation, or None, and the next row number of
    the spool.
    """
    gone = wal.vanished(folder / FILE)
    with closing(open_store(folder, "site-7")) as database:
        why = why_other_generation(database, folder, gone)
        state = recover(database, None, 16, forget=why is not None)
    return why, state.next_spool


@pytest.mark.parametrize("how", ["cut to nothing", "cut in its header", "deleted", "both deleted"])
def test_lost_log_after_a_kill_is_said_and_numbers_skip_ahead(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "killed"
    killed(tmp_path / "data", folder)
    log, index = folder / f"{FILE}-wal", folder / f"{FILE}-shm"
    if how.startswith("cut"):
        with log.open("r+b") as file:
            file.truncate(0 if how == "cut to nothing" else 20)
    else:
        log.unlink()
        if how == "both deleted":
            index.unlink()
    why, first = start(folder)
    assert why is not None
    assert "acknowledged" in why
    assert first == 5 + run_marks.SKIPPED + 1
    with closing(open_store(folder, "site-7")) as database:
        apply(database, rows(first, first))
    assert check(folder) == [], "the skipped numbers are no missing readings"


def test_whole_log_after_a_kill_is_read_without_a_word(tmp_path: Path) -> None:
    killed(tmp_path / "data", tmp_path / "killed")
    assert start(tmp_path / "killed") == (None, 10)


def test_stop_leaves_no_log_and_no_mark(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, "site-7")) as database:
        recover(database, None, 16)
    Writer(tmp_path, lambda _: None, lambda _: None, lambda *_: None).stop(1.0, None)
    assert wal.vanished(tmp_path / FILE) is not None, "the log is gone in order"
    (tmp_path / "generation").unlink(missing_ok=True)
    with closing(open_store(tmp_path, "site-7")) as database:
        assert run_marks.was_stopped(database)


def test_uplink_that_closes_last_has_copied_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    killed(tmp_path / "data", folder)
    with Spool(folder) as spool:
        assert spool.waiting(100)[0] == 9
    assert start(folder) == (None, 10)


def test_mark_of_an_older_start_says_nothing(tmp_path: Path) -> None:
    """An older version ran in between: version 0.2.0 counts its starts, but writes no run mark, and
    deletes the log when it stops.
    """
    with closing(open_store(tmp_path, "site-7")) as database:
        recover(database, None, 16)
    with closing(sqlite3.connect(tmp_path / FILE)) as database, database:
        database.execute("UPDATE meta SET value = '2' WHERE key = 'boot'")
    assert start(tmp_path) == (None, 1)
