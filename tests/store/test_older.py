"""A store of an older version can be opened with its whole content. The row numbers of the spool
continue.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.broker.store_rows import Commit
from gateway.store.apply import apply
from gateway.store.check import check
from gateway.store.recovery import recover
from gateway.store.schema import FILE, PAGE_BYTES, SCHEMA_VERSION, open_store
from gateway.uplink.spool import Spool
from tests.store.older import downgrade


def fill(folder: Path, first: int, last: int) -> None:
    with closing(open_store(folder, "site-7")) as database:
        commit = Commit(1)
        commit.sessions = [(1, "c", 100, None, 0, None)]
        commit.flows = [(1, b"\0\7", 5, b"", b"")]
        commit.spool = [
            (n, "d", 1, n, "c", "spool/0123", bytes(100), 1, n, None)
            for n in range(first, last + 1)
        ]
        apply(database, commit)


def test_a_new_store_has_small_pages(tmp_path: Path) -> None:
    fill(tmp_path, 1, 1)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert database.execute("PRAGMA page_size").fetchone() == (PAGE_BYTES,)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("left", [0, 10])
def test_an_older_store_goes_on_where_it_was(tmp_path: Path, version: int, left: int) -> None:
    fill(tmp_path, 1, 50)
    downgrade(tmp_path / FILE, version)
    with closing(sqlite3.connect(tmp_path / FILE)) as database, database:
        database.execute("DELETE FROM spool WHERE id > ?", (left,))
    for _ in range(2):
        with closing(open_store(tmp_path, "site-7")) as database:
            assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
            state = recover(database, None, 16)
            assert state.next_spool == 51, "spool ids are never used twice"
            assert [row[:2] for row in state.sessions] == [(1, "c")]
            assert state.flows == [(1, b"\0\7", 5, b"", b"")]
    assert check(tmp_path) == []
    fill(tmp_path, 51, 60)
    with closing(open_store(tmp_path, "site-7")) as database:
        assert recover(database, None, 16).next_spool == 61


def test_identifiers_of_an_older_store_become_marks(tmp_path: Path) -> None:
    with closing(open_store(tmp_path, "site-7")) as database:
        commit = Commit(1)
        commit.sessions = [(n, f"c{n}", 100, None, n - 1, None) for n in (1, 2, 3)]
        commit.flows = [(n, b"\0\7" * (n < 3), 5, b"", b"") for n in (1, 2, 3)]
        apply(database, commit)
    downgrade(tmp_path / FILE, 3)
    assert check(tmp_path) == []
    with closing(open_store(tmp_path, "site-7")) as database:
        assert recover(database, None, 16).marks == [("c2", 0, 1, 0, 0, b"\0\7")]
    assert check(tmp_path) == []


def test_numbers_of_the_spool_go_on_when_its_batches_are_forgotten(tmp_path: Path) -> None:
    fill(tmp_path, 1, 50)
    with closing(Spool(tmp_path)) as spool:
        spool.renumber("0badcafe", {}, landed_before=51)
    with closing(open_store(tmp_path, "site-7")) as database:
        assert database.execute("SELECT count(*) FROM spool").fetchone() == (0,)
        assert recover(database, None, 16).next_spool == 51
