"""A gateway notices that its store was restored or cloned, and then forgets state that may be
stale. After a power failure alone, it forgets nothing.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.store import generation
from gateway.store.backup import backup, restore
from gateway.store.generation import NAME, Generation, why_other_generation
from gateway.store.recovery import recover
from gateway.store.schema import FILE, StoreError, open_store

IDS = b"\0\7"


@contextmanager
def started(folder: Path) -> Iterator[tuple[sqlite3.Connection, str | None]]:
    """Open a store as a gateway does at its start. Yield the database, and the reason why it is
    another store generation, or None.
    """
    with closing(open_store(folder, "site")) as database:
        why = why_other_generation(database, folder)
        recover(database, None, 16, forget=why is not None)
        Generation(folder, database).change()
        yield database, why


def life(folder: Path) -> str | None:
    with started(folder) as (_, why):
        return why


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a store with one exchange between PUBLISH and PUBREL."""
    folder = tmp_path / "data"
    folder.mkdir()
    with started(folder) as (database, why):
        assert why is None
        database.execute("INSERT INTO session VALUES (1, 'c', 9, NULL, 0, NULL)")
        database.execute("INSERT INTO flow VALUES (1, ?, 1, x'', x'')", (IDS,))
        database.execute("INSERT INTO mark VALUES ('b', 0, 7, 5, 0, x'')")
        database.execute("INSERT INTO session VALUES (20, 'b', 9, NULL, 7, NULL)")
    return folder


def received(folder: Path) -> bytes:
    """Return the stored packet identifiers between PUBLISH and PUBREL. Check that the board's
    anti-replay window and session exist exactly if these identifiers do. If the session existed
    without the identifiers, the board would take the reason code 0x92 as success.
    """
    with closing(sqlite3.connect(folder / FILE)) as database:
        found = bytes(database.execute("SELECT received FROM flow").fetchone()[0])
        assert database.execute("SELECT count(*) FROM mark").fetchone() == (found == IDS,)
        expiries = dict(database.execute("SELECT client, expiry FROM session"))
        assert expiries == {"c": 9, "b": 9 if found == IDS else 0}
    return found


def test_a_store_that_goes_on_keeps_what_it_knows(folder: Path) -> None:
    for _ in range(3):
        assert life(folder) is None
    assert received(folder) == IDS


def test_a_cut_between_the_database_and_the_file_beside_it_means_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        with monkeypatch.context() as cut, closing(open_store(folder, "site")) as database:
            cut.setattr(generation.os, "replace", lambda *_: 1 // 0)
            assert why_other_generation(database, folder) is None
            with pytest.raises(ZeroDivisionError):
                Generation(folder, database).change()
    assert life(folder) is None
    assert received(folder) == IDS


def test_copy_from_before_the_last_change_is_another_generation(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copy(folder / FILE, tmp_path / "copy")
    assert life(folder) is None
    shutil.copy(tmp_path / "copy", folder / FILE)
    assert "belongs to another store" in (life(folder) or "")
    assert received(folder) == b""
    assert life(folder) is None, "said once"


def test_copy_without_its_generation_file_is_another_generation(
    folder: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    shutil.copy(folder / FILE, clone / FILE)
    assert f"the file {NAME} is missing beside the store" in (life(clone) or "")
    assert received(clone) == b""


def test_new_store_in_the_place_of_a_lost_one_is_another_generation(folder: Path) -> None:
    for path in folder.glob(f"{FILE}*"):
        path.unlink()
    assert "the previous one is gone" in (life(folder) or "")
    assert life(folder) is None, "said once"


def test_card_in_another_machine_is_another_generation(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serial = tmp_path / "serial-number"
    monkeypatch.setattr(generation, "_SERIAL", serial)
    serial.write_text("10000000aaaaaaaa\0")
    assert [life(folder), life(folder)] == [None, None]
    serial.write_text("10000000bbbbbbbb\0")
    assert "another machine (serial number 10000000aaaaaaaa" in (life(folder) or "")
    assert life(folder) is None


def test_store_without_a_generation_keeps_its_rows(folder: Path) -> None:
    (folder / NAME).unlink()
    with closing(sqlite3.connect(folder / FILE)) as database, database:
        database.execute("DELETE FROM meta WHERE key IN ('generation', 'machine')")
    assert life(folder) is None
    assert received(folder) == IDS


def test_backup_is_recognised_in_any_folder(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    backup(folder, copy)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert life(folder) is None, "the store itself goes on"
    elsewhere = tmp_path / "elsewhere"
    assert restore(elsewhere, copy) is None
    assert "it was restored from copy.db" in (life(elsewhere) or "")
    shutil.copy(copy, folder / FILE)
    assert "it is a backup of 20" in (life(folder) or "")
    assert received(folder) == b""


def test_a_restore_keeps_the_store_that_was_there_with_its_log(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    backup(folder, copy)
    with closing(open_store(folder, "site")) as database:
        database.execute("INSERT INTO session VALUES (2, 'later', 9, NULL, 0, NULL)")
        shutil.copy(folder / FILE, tmp_path / "db")
        shutil.copy(folder / f"{FILE}-wal", tmp_path / "wal")
    shutil.copy(tmp_path / "db", folder / FILE)  # the log stays, as after a kill
    shutil.copy(tmp_path / "wal", folder / f"{FILE}-wal")
    old = restore(folder, copy)
    assert old is not None
    with closing(sqlite3.connect(old)) as database:
        clients = database.execute("SELECT client FROM session WHERE incarnation = 0")
        assert clients.fetchall() == [("c",), ("later",)]
    with closing(sqlite3.connect(folder / FILE)) as database:
        clients = database.execute("SELECT client FROM session WHERE incarnation = 0")
        assert clients.fetchall() == [("c",)]


def test_invalid_backup_replaces_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database\n" * 500)
    for source in (tmp_path / "text", tmp_path / "nowhere"):
        with pytest.raises(StoreError, match="cannot be restored"):
            restore(folder, source)
    assert received(folder) == IDS
    with pytest.raises(StoreError, match="there is a file already"):
        backup(folder, tmp_path / "text")
