"""Copies and stores that cannot be used are refused with the reason, and change nothing."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.store import backup as copies
from gateway.store import views
from gateway.store.check import check
from gateway.store.cli import app
from gateway.store.schema import FILE, StoreError, make_folder, open_store, unusable
from tests.store.test_salvage import damage, filled


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    if isinstance(result.exception, Exception):
        raise result.exception
    return result.exit_code, result.stdout


def test_damaged_store_is_not_backed_up(tmp_path: Path) -> None:
    filled(tmp_path)
    damage(tmp_path, 60)
    to = tmp_path / "copy.db"
    with pytest.raises(StoreError, match="the store is damaged") as refused:
        copies.backup(tmp_path, to)
    assert refused.value.hint == "See: onceway store check"
    assert not list(tmp_path.glob("copy.db*"))


def test_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        folder.mkdir()
        filled(folder)
    damage(bad, 60)
    before = (good / FILE).read_bytes()
    with pytest.raises(StoreError, match="the backup is damaged"):
        copies.restore(good, bad / FILE)
    assert (good / FILE).read_bytes() == before
    assert check(good) == []


@pytest.mark.parametrize("empty", [True, False])
def test_log_without_its_database_is_not_given_up(tmp_path: Path, empty: bool) -> None:
    """SQLite would delete the log, and with it acknowledged messages."""
    filled(tmp_path)
    log = tmp_path / f"{FILE}-wal"
    log.write_bytes(b"commits that are not in the database")
    (tmp_path / FILE).unlink()
    if empty:
        (tmp_path / FILE).touch()
        assert check(tmp_path) == ["the write-ahead log exists, but the database is empty or gone"]
    with pytest.raises(StoreError, match="the write-ahead log exists") as refused:
        open_store(tmp_path, "site-7")
    assert "move the log away" in str(refused.value.hint)
    assert log.read_bytes() == b"commits that are not in the database"


def test_log_of_a_store_that_cannot_be_read_goes_with_it(tmp_path: Path) -> None:
    """The restored store would otherwise be read with the write-ahead log of another one."""
    good, source = tmp_path / "good", tmp_path / "source.db"
    good.mkdir()
    filled(good)
    copies.backup(good, source)
    garbage = {"": b"no database" * 100, "-wal": bytes(range(64))}
    for end, data in garbage.items():
        (good / f"{FILE}{end}").write_bytes(data)
    old = copies.restore(good, source)
    assert old is not None
    assert {end: old.with_name(old.name + end).read_bytes() for end in garbage} == garbage
    assert [path.name for path in good.glob(f"{FILE}*")] == [FILE]
    assert check(good) == []


def test_commands_print_json_for_programs(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy.db"
    data.mkdir()
    filled(data)
    made = run("backup", "--to", str(copy), "--data", str(data), "--json")
    assert made == (0, json.dumps({"backup": str(copy)}) + "\n")
    for there in (True, False):
        if not there:
            shutil.rmtree(data)
            assert run("restore", "--from", str(copy), "--data", str(data)) == (
                0,
                f"{data}: restored from {copy}\n",
            )
            shutil.rmtree(data)
        code, said = run("restore", "--from", str(copy), "--data", str(data), "--json")
        found = json.loads(said)
        assert (code, found["from"], found["dropped"]) == (0, str(copy), [])
        assert (found["old"] is not None) == there
    damage(data, 60)
    code, said = run("salvage", "--data", str(data), "--json")
    found = json.loads(said)
    assert code == 0
    assert found["lost"]
    assert found["rows"]["spool"] < 2990


@pytest.mark.parametrize(
    ("code", "text", "what", "hint"),
    [
        (sqlite3.SQLITE_FULL, "disk full", "the disk is full", "Make room on the disk"),
        (sqlite3.SQLITE_BUSY, "locked", "another program has locked", "End the program"),
        (None, "odd", "cannot be opened: an error without", "onceway store check --data"),
        (sqlite3.SQLITE_ERROR, "no such table", "damaged (no such table)", "onceway store salvage"),
        (None, "Could not decode to UTF-8", "damaged (Could not", "onceway store salvage"),
    ],
)
def test_store_is_called_damaged_only_if_it_is(
    tmp_path: Path, code: int | None, text: str, what: str, hint: str
) -> None:
    """A full or busy disk needs no salvage, which leaves rows out."""
    error = sqlite3.OperationalError(text)
    if code is not None:
        error.sqlite_errorcode = code
    found = unusable(tmp_path, error)
    assert what in found.what
    assert hint in str(found.hint)
    assert found.where == str(tmp_path / FILE)


def test_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot create the data directory") as refused:
        make_folder(tmp_path / "file" / "data")
    assert refused.value.where == str(tmp_path / "file" / "data")
    assert "its disk is mounted" in str(refused.value.hint)


def test_store_of_an_older_gateway_has_no_later_tables(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        for table in ("aside", "place", "given", "given_part"):
            database.execute(f"DROP TABLE {table}")
        database.commit()
    assert views.aside(tmp_path) == []
    assert views.places(tmp_path) == (set(), {})
