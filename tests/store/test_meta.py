"""Damaged rows of `meta` are named, each by its key."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.store import meta, uptime
from gateway.store.schema import FILE, open_store
from gateway.store.uptime import DAY, MOST_AWAY


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    with closing(open_store(tmp_path, "site-7")):
        pass
    return sqlite3.connect(tmp_path / FILE, isolation_level=None)


def test_fresh_store_without_any_row_is_sound(database: sqlite3.Connection) -> None:
    """The power may have failed while the store was created."""
    database.execute("DELETE FROM meta")
    database.execute("DELETE FROM twin")
    assert meta.damage(database) == {}
    database.execute("INSERT INTO session VALUES (1, 'c', 1, NULL, 0, NULL)")
    assert "the epoch is gone (meta.epoch)" in meta.damage(database).values()


def test_row_with_an_invalid_key_is_named(database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO meta VALUES (CAST(x'ff' AS TEXT), '1')")
    assert meta.damage(database)[""] == "a row of meta: its key is invalid"


def test_key_that_differs_in_the_index_is_named(tmp_path: Path) -> None:
    """SQLite finds such a row by its old key, and would return a value under a wrong name."""
    with closing(open_store(tmp_path, "site-7")) as store:
        store.execute("INSERT INTO meta VALUES ('certain-key', 'yes')")
        store.execute("PRAGMA journal_mode=DELETE")
    image = (tmp_path / FILE).read_bytes()
    places = [found.start() for found in re.finditer(b"certain-key", image)]
    told = list[str]()
    for place in places:
        with closing(sqlite3.connect(":memory:")) as harmed:
            harmed.deserialize(image[:place] + b"certain-kez" + image[place + 11 :])
            told += [text for text in meta.damage(harmed).values() if "the index has" in text]
    assert set(told) == {
        f"row {key!r} of meta: the index has another key for this row"
        for key in ("certain-key", "certain-kez")
    }


def test_times_of_a_wrong_clock_are_not_believed(
    database: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A gateway that was "off" for longer than it can be believed was off for 0 s: otherwise all
    sessions would expire.
    """
    now = 1_700_000_000_000_000
    database.execute("INSERT OR REPLACE INTO meta VALUES ('axis', ?)", (f"5000 at {now}",))
    assert uptime.axis(database, now + MOST_AWAY, None) == 5 + MOST_AWAY / 1_000_000
    assert uptime.axis(database, now + MOST_AWAY + DAY, None) == 5.0
    days = (MOST_AWAY + DAY) // DAY
    assert f"off for {days} days: not believed" in caplog.text
    assert uptime.axis(database, now - DAY, None) == 5.0, "a clock that went back counts as 0 s"
