"""The journal of a publisher: messages on disk, its lock, and how a copied journal is noticed."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceway_publisher import journal as journal_module
from onceway_publisher.errors import JournalError, JournalLocked
from onceway_publisher.journal import LAST_SEQUENCE, MIGRATIONS, Journal

HOLDER = """
import sys, time
from pathlib import Path
from onceway_publisher.journal import Journal
journal = Journal(Path(sys.argv[1]), "boiler", 7)
for number in range(int(sys.argv[2])):
    (message,) = journal.write([("t", b"%d" % number, False)], [])
    print(*message.key, flush=True)
print("holds", flush=True)
time.sleep(60)
"""


def opened(path: Path, device: str = "boiler", incarnation: int | None = None) -> Journal:
    return Journal(path, device, incarnation)


def keys(journal: Journal) -> list[tuple[int, int]]:
    return [message.key for message in journal.waiting]


def three(path: Path) -> int:
    """Make a journal with three messages. Return its incarnation."""
    with closing(opened(path)) as journal:
        journal.write([("t", b"1", False), ("u", b"2", True)], [])
        journal.write([("t", b"3", False)], [])
        return journal.incarnation


def test_messages_wait_in_order_with_their_numbers(tmp_path: Path) -> None:
    incarnation = three(tmp_path / "j.db")
    with closing(opened(tmp_path / "j.db")) as journal:
        assert [(it.key, it.topic, it.payload, bool(it.retain)) for it in journal.waiting] == [
            ((incarnation, 1), "t", b"1", False),
            ((incarnation, 2), "u", b"2", True),
            ((incarnation, 3), "t", b"3", False),
        ]
        assert not journal.copied


def test_a_sequence_is_never_used_again(tmp_path: Path) -> None:
    incarnation = three(tmp_path / "j.db")
    with closing(opened(tmp_path / "j.db")) as journal:
        journal.write([], [(incarnation, number) for number in (1, 2, 3)])
    with closing(opened(tmp_path / "j.db")) as journal:
        assert journal.waiting == []
        (message,) = journal.write([("t", b"", False)], [])
        assert message.key == (incarnation, 4)


def test_the_last_sequence_begins_another_incarnation(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "j.db", incarnation=7)) as journal:
        journal.sequence = LAST_SEQUENCE - 1
        last, first = journal.write([("t", b"", False), ("t", b"", False)], [])
        assert last.key == (7, LAST_SEQUENCE)
        assert first.incarnation != 7
        assert first.sequence == 1


def holder(path: Path, count: int) -> tuple[subprocess.Popen[str], list[tuple[int, int]]]:
    """Start a process that writes `count` messages to a journal and keeps it open. Return the
    process, and incarnation and sequence of each message.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path, str(count)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = []
    for line in process.stdout:
        if line == "holds\n":
            return process, told
        incarnation, sequence = map(int, line.split())
        told.append((incarnation, sequence))
    raise AssertionError("the process has ended")


def test_one_process_has_a_journal_and_kill_9_frees_it(tmp_path: Path) -> None:
    process, told = holder(tmp_path / "j.db", 5)
    try:
        with pytest.raises(JournalLocked, match="another process has this journal open"):
            opened(tmp_path / "j.db")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with closing(opened(tmp_path / "j.db")) as journal:
        assert keys(journal) == told == [(7, number) for number in range(1, 6)]
        assert not journal.copied, "a kill makes no copy"


def test_each_written_message_survives_a_power_cut(tmp_path: Path) -> None:
    """The test makes the files as they are on disk after each commit. SQLite syncs its log in each
    commit (synchronous=FULL), so a power cut damages only later writes.
    """
    path = tmp_path / "j.db"
    with closing(opened(path)) as journal:
        settings = [
            journal._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "locking_mode")
        ]
        assert settings == ["wal", 2, "exclusive"]
        done, moments = [], []
        for number in range(6):
            done += [m.key for m in journal.write([("t", b"%d" % number, False)], [])]
            folder = tmp_path / str(number)
            folder.mkdir()
            for name in os.listdir(tmp_path):
                if name.startswith("j.db"):
                    shutil.copy(tmp_path / name, folder)
            moments.append((folder / "j.db", list(done)))
    for copy, expected in moments:
        log = copy.with_name("j.db-wal")
        with log.open("ab") as file:
            file.write(b"\x5a" * 3000)  # an incomplete frame of the next commit
        with closing(opened(copy)) as journal:
            assert keys(journal) == expected


@pytest.mark.parametrize("how", ["copied", "moved back", "overwritten"])
def test_a_journal_that_was_copied_or_restored_gets_another_incarnation(
    how: str, tmp_path: Path
) -> None:
    path, copy = tmp_path / "j.db", tmp_path / "copy.db"
    incarnation = three(path)
    shutil.copy(path, copy)
    if how == "copied":
        shutil.copy(tmp_path / "j.db.place", tmp_path / "copy.db.place")
        target = copy
    else:
        with closing(opened(path)) as journal:
            journal.write([("t", b"4", False)], [])
        if how == "moved back":
            copy.replace(path)
        else:
            path.write_bytes(copy.read_bytes())  # keeps the inode
        target = path
    with closing(opened(target)) as journal:
        assert journal.copied
        assert keys(journal) == [(incarnation, number) for number in (1, 2, 3)]
        (message,) = journal.write([("t", b"other", False)], [])
        assert message.incarnation != incarnation
        assert message.sequence == 1
        used = journal.incarnation
    with closing(opened(target)) as journal:
        assert not journal.copied
        assert journal.incarnation == used


def test_a_start_that_a_power_cut_undoes_is_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start writes to the journal and to the file next to it. After a power cut, only one of the
    two changes may be on disk, in either order.
    """
    path = tmp_path / "j.db"
    incarnation, before = three(path), (tmp_path / "j.db.place").read_text()

    class Cut(Exception): ...

    def cut(path: Path, text: str) -> None:
        keep(path, text)
        raise Cut

    keep = journal_module._keep
    monkeypatch.setattr(journal_module, "_keep", cut)
    with pytest.raises(Cut):
        opened(path)
    monkeypatch.undo()
    assert before in (tmp_path / "j.db.place").read_text() != before
    for _ in range(2):
        with closing(opened(path)) as journal:
            assert not journal.copied
            assert journal.incarnation == incarnation
    (tmp_path / "j.db.place").write_text(before)  # the file of an older start
    with closing(opened(path)) as journal:
        assert journal.copied


def test_another_machine_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    incarnation = three(tmp_path / "j.db")
    machine = tmp_path / "machine-id"
    machine.write_text("another")
    monkeypatch.setattr("onceway_publisher.journal._MACHINE", machine)
    with closing(opened(tmp_path / "j.db")) as journal:
        assert journal.copied
        assert journal.incarnation != incarnation


def test_a_journal_belongs_to_one_device(tmp_path: Path) -> None:
    three(tmp_path / "j.db")
    with pytest.raises(JournalError, match="belongs to the device 'boiler', not to 'pump'"):
        opened(tmp_path / "j.db", "pump")


def test_file_that_is_no_journal_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 100)
    with pytest.raises(JournalError, match="not a database"):
        opened(tmp_path / "text")
    with pytest.raises(JournalError, match="Create the folder"):
        opened(tmp_path / "nowhere" / "j.db")
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE mine (x)")
        other.commit()
    with pytest.raises(JournalError, match="another program's database"):
        opened(tmp_path / "other.db")
    three(tmp_path / "new.db")
    with closing(sqlite3.connect(tmp_path / "new.db")) as newer:
        newer.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    with pytest.raises(JournalError, match="a newer onceway-publisher"):
        opened(tmp_path / "new.db")


def test_a_disk_that_may_not_be_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test lets SQLite open the journal read-only. File permissions would not stop root, who
    may run the tests.
    """
    three(tmp_path / "j.db")
    connect = sqlite3.connect

    def read_only(path: Path, **options: Any) -> sqlite3.Connection:
        return connect(f"file:{path}?mode=ro", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    with pytest.raises(JournalError, match="mounted read-only"):
        opened(tmp_path / "j.db")


def test_a_failed_commit_changes_nothing(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "j.db", incarnation=7)) as journal:
        journal.write([("t", b"1", False)], [])
        pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
        journal._connection.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(JournalError, match="full"):
            journal.write([("t", bytes(100_000), False)], [])
        journal._connection.execute("PRAGMA max_page_count=100000")
        (message,) = journal.write([("t", b"2", False)], [])
        assert message.key == (7, 2)
    with closing(opened(tmp_path / "j.db")) as journal:
        assert [it.payload for it in journal.waiting] == [b"1", b"2"]
