"""Damage at any place of a store: what is called sound keeps every row, what is not is named, and
salvage keeps what can be read.
"""

import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.store_rows import Commit
from gateway.store.apply import apply
from gateway.store.check import check
from gateway.store.salvage import salvage
from gateway.store.schema import FILE, StoreError, open_store

SEED = 11
PLACES = 25
KEYS = {
    "spool": "id",
    "message": "id",
    "queue": "session || '/' || first || '/' || message",
    "session": "id",
    "flow": "session",
}


def commit(number: int) -> Commit:
    """Ten messages that wait for two sessions."""
    made, ids = Commit(number), range(number * 10, number * 10 + 10)
    made.sessions = [(session, f"client {session}", 1000, None, 0, None) for session in (1, 2)]
    made.flows = [(session, b"\0\7", 1, b"", b"\0\1") for session in (1, 2)]
    made.messages = [(n, f"t/{n}", 0, 2, b"", None, random.Random(n).randbytes(120)) for n in ids]
    made.queue = [(session, 2 * n, 2, n, 0, 4, b"", "", 60) for n in ids for session in (1, 2)]
    made.spool = [(n, "device", 1, n, "client", f"t/{n}", bytes(60), 1, n, None) for n in ids]
    made.retained = [(f"t/{n}", "client", 1, b"", None, b"x" * 50, 0) for n in ids]
    return made


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, all of it in the database file."""
    folder = tmp_path_factory.mktemp("sound")
    with closing(open_store(folder, "site")) as database:
        for number in range(1, 60):
            apply(database, commit(number))
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, most of it in the log, as a gateway leaves it that was killed."""
    folder, copy = tmp_path_factory.mktemp("open"), tmp_path_factory.mktemp("logged")
    with closing(open_store(folder, "site")) as database:
        database.execute("PRAGMA wal_autocheckpoint=0")
        for number in range(1, 30):
            apply(database, commit(number))
        for file in (FILE, f"{FILE}-wal"):
            shutil.copy(folder / file, copy / file)
    return copy


def rows(folder: Path) -> dict[str, list[Any]]:
    """The keys of what a store holds."""
    with closing(sqlite3.connect(folder / FILE)) as database:
        return {
            table: database.execute(f"SELECT {key} FROM {table} ORDER BY 1").fetchall()
            for table, key in KEYS.items()
        }


def flip(data: bytearray, at: int, chance: random.Random) -> None:
    data[at] ^= 1 << chance.randrange(8)


def zero(data: bytearray, at: int, chance: random.Random) -> None:
    at -= at % 512
    data[at : at + 512] = bytes(512)


def garbage(data: bytearray, at: int, chance: random.Random) -> None:
    at -= at % 4096
    data[at : at + 4096] = chance.randbytes(4096)


def cut_off(data: bytearray, at: int, chance: random.Random) -> None:
    del data[at:]


def damaged(
    folder: Path, name: str, how: Callable[[bytearray, int, random.Random], None], where: Path
) -> Iterator[Path]:
    """Copies of a store, each with one file damaged at one place."""
    chance = random.Random(SEED)
    for number in range(PLACES):
        copy = where / str(number)
        shutil.copytree(folder, copy)
        data = bytearray((copy / name).read_bytes())
        how(data, chance.randrange(len(data)), chance)
        (copy / name).write_bytes(data)
        yield copy


def named(lost: list[str]) -> set[int]:
    """The rows of the spool that are said to be lost."""
    found = [re.match(r"spool: rows (\d+) to (\d+), ", line) for line in lost]
    return {
        number for match in found if match for number in range(int(match[1]), int(match[2]) + 1)
    }


@pytest.mark.parametrize("how", [flip, zero, garbage, cut_off])
def test_a_store_that_is_called_sound_has_every_row(
    sound: Path, tmp_path: Path, how: Callable[[bytearray, int, random.Random], None]
) -> None:
    whole = rows(sound)
    found = 0
    for copy in damaged(sound, FILE, how, tmp_path):
        if check(copy):
            found += 1
            after = salvage(copy)
            assert check(copy) == []
            strange = sum(len(set(kept) - set(whole[table])) for table, kept in rows(copy).items())
            assert strange <= (how is flip)
            assert after.findings
            kept = {number for (number,) in rows(copy)["spool"]}
            missing = {number for (number,) in whole["spool"]} - kept
            if any("which row was the last" in line for line in after.lost):
                missing = {number for number in missing if number < max(kept, default=0)}
            assert named(after.lost) >= missing
        elif how is flip:  # one bit of a value may break no rule: a row may have got another key
            assert {table: len(kept) for table, kept in rows(copy).items()} == {
                table: len(kept) for table, kept in whole.items()
            }
        else:
            assert rows(copy) == whole
    assert found > (PLACES // 20 if how is flip else PLACES // 3)


@pytest.mark.parametrize("how", [flip, zero, garbage])
def test_a_log_that_lost_commits_is_not_taken_for_a_power_cut(
    logged: Path, tmp_path: Path, how: Callable[[bytearray, int, random.Random], None]
) -> None:
    """But for the last commit: that one may have been torn. Garbage of 4 kB may cover two."""
    with closing(sqlite3.connect(shutil.copytree(logged, tmp_path / "whole") / FILE)):
        whole = rows(tmp_path / "whole")
    found = 0
    for copy in damaged(logged, f"{FILE}-wal", how, tmp_path):
        findings = check(copy)
        if findings:
            found += 1
            with pytest.raises(
                StoreError, match=r"the store is damaged .*log.*onceway store salvage"
            ):
                open_store(copy, "site")
            assert "log" in salvage(copy).lost[0]
            assert check(copy) == []
        else:
            unseen = 20 if how is garbage else 10
            assert len(rows(copy)["spool"]) >= len(whole["spool"]) - unseen
    assert found > PLACES // 3


@pytest.mark.parametrize("gone", [False, True], ids=["empty", "gone"])
def test_a_log_without_its_database_is_kept(logged: Path, tmp_path: Path, gone: bool) -> None:
    """SQLite would delete it, and the gateway would begin an empty store."""
    copy = shutil.copytree(logged, tmp_path / "copy")
    left = (copy / f"{FILE}-wal").read_bytes()
    if gone:
        (copy / FILE).unlink()
    else:
        (copy / FILE).write_bytes(b"")
        assert check(copy)
        with pytest.raises(StoreError, match="Bring the database back from a copy"):
            salvage(copy)
    with pytest.raises(StoreError, match="the log is there, but the database is empty or gone"):
        open_store(copy, "site")
    assert (copy / f"{FILE}-wal").read_bytes() == left
