"""The table of messages that are set aside, in stores of this version and of older ones."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.broker.store_rows import AsideRow, Commit
from gateway.store import views
from gateway.store.apply import apply
from gateway.store.backup import backup
from gateway.store.check import check
from gateway.store.downgrade import downgrade
from gateway.store.recovery import recover
from gateway.store.salvage import salvage
from gateway.store.schema import FILE, connect, open_store

ROWS: list[AsideRow] = [
    (1, "cloud", None, "t/ä", 2, 1, b"\x03\0\1x", 5_000, b"payload", "because"),
    (2, "other", 1_000_000, "t", 0, 0, b"", None, b"", "because"),
    (7, "cloud", 2_000_000, "t", 1, 0, b"", None, b"x" * 100, "because"),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with closing(open_store(tmp_path, "test")) as database:
        apply(database, Commit(1, aside=ROWS))
    return tmp_path


def held(folder: Path) -> list[AsideRow]:
    with closing(sqlite3.connect(folder / FILE)) as database:
        return database.execute("SELECT * FROM aside ORDER BY id").fetchall()


def test_rows_come_back_with_their_sizes(store: Path) -> None:
    with closing(open_store(store, "test")) as database:
        sizes = [(1, "cloud", 4 + 4 + 7 + 64), (2, "other", 1 + 64), (7, "cloud", 1 + 100 + 64)]
        assert recover(database, None, 10).aside == sizes
        apply(database, Commit(2, aside_gone=[1, 99]))
        assert recover(database, None, 10).aside == sizes[1:]


def test_people_see_them(store: Path) -> None:
    assert [item.number for item in views.aside(store)] == [1, 2, 7]
    first, second = views.aside(store, "cloud")
    assert (first.topic, first.expires, first.payload) == ("t/ä", 5.0, b"payload")
    assert second.set_aside == 2_000_000
    with closing(connect(store / FILE)) as database:
        assert views.discard_aside(database, "cloud", [7, 2]) == 1
        assert views.discard_aside(database, "cloud", []) == 1
    assert held(store) == [ROWS[1]]


def test_a_copy_and_a_salvaged_store_have_them(store: Path, tmp_path: Path) -> None:
    backup(store, tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as database:
        assert database.execute("SELECT * FROM aside ORDER BY id").fetchall() == ROWS
    assert check(store) == []
    assert not [text for text in salvage(store).lost if "aside" in text]
    assert held(store) == ROWS


def test_a_store_of_a_version_without_the_table_has_lost_nothing(store: Path) -> None:
    with closing(connect(store / FILE)) as database:
        database.execute("DROP TABLE aside")
    assert views.aside(store) == []
    assert check(store) == []
    assert not [text for text in salvage(store).lost if "aside" in text]
    open_store(store, "test").close()
    assert held(store) == []


def test_going_back_to_an_older_version_keeps_them(store: Path) -> None:
    downgrade(store, 5)
    assert held(store) == ROWS
    open_store(store, "test").close()
    assert held(store) == ROWS


def test_a_row_that_cannot_be_is_told(store: Path) -> None:
    with closing(connect(store / FILE)) as database:
        database.execute("UPDATE aside SET qos = 3 WHERE id = 2")
    assert check(store) == ["a message that is set aside and cannot be: 1"]
