"""If a disk accepts no data, each cause has one sentence. Refusals, the status and the log use the
same sentence.
"""

import errno
import os
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from gateway.broker.lack import Bound
from gateway.broker.store_rows import Commit
from gateway.commands import main as script
from gateway.errors import OncewayError
from gateway.mqtt.reason import ReasonCode
from gateway.store.schema import open_store, unusable
from gateway.store.writer import Writer
from gateway.system import causes
from gateway.system.causes import Cause, cause, of_machine, remedy
from gateway.system.lock import ProcessLock, holder
from gateway.uplink.runner import _words
from gateway.web.health import problems
from tests.broker.harness import World
from tests.web.test_overview import source

SQLITE = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "read-only",
    "SQLITE_READONLY_DIRECTORY": "read-only",
    "SQLITE_IOERR_FSYNC": "the disk fails",
    "SQLITE_IOERR_WRITE": "the disk fails",
    "SQLITE_IOERR_READ": "the disk fails",
    "SQLITE_IOERR_SHMSIZE": "the disk fails",
    "SQLITE_IOERR_NOMEM": "no memory",
    "SQLITE_CORRUPT": "is damaged",
    "SQLITE_NOTADB": "is damaged",
    "SQLITE_BUSY": "another program",
    "SQLITE_BUSY_SNAPSHOT": "another program",
    "SQLITE_LOCKED": "another program",
    "SQLITE_CANTOPEN": "cannot be opened",
    "SQLITE_NOMEM": "no memory",
    "SQLITE_ERROR": "without a known cause",
}
SYSTEM = {
    "ENOSPC": "the disk is full",
    "EDQUOT": "quota",
    "EROFS": "read-only",
    "EIO": "the disk fails",
    "ENOENT": "does not exist",
    "EACCES": "no permission",
    "EPERM": "no permission",
    "ENOMEM": "no memory",
    "EMFILE": "too many files",
    "EINTR": "without a known cause",
}

MACHINE = (
    "the disk is full",
    "quota",
    "read-only",
    "the disk fails",
    "no memory",
    "too many files",
)
"""Causes that concern the whole machine, not only one file."""


def of_sqlite(name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(f"told as {name}")
    error.sqlite_errorcode = getattr(sqlite3, name)
    error.sqlite_errorname = name
    return error


def of_system(name: str) -> OSError:
    number = getattr(errno, name)
    return OSError(number, os.strerror(number))


ERRORS: list[tuple[Exception, str]] = [
    *((of_sqlite(name), words) for name, words in SQLITE.items()),
    *((of_system(name), words) for name, words in SYSTEM.items()),
]
NAMES = [*SQLITE, *SYSTEM]
TEMPORARY = [pair for pair in ERRORS if "damaged" not in pair[1]]


@pytest.mark.parametrize(("error", "words"), ERRORS, ids=NAMES)
def test_cause_has_its_sentence_and_a_remedy(error: Exception, words: str) -> None:
    found = cause(error)
    assert words in found.reason
    assert found.todo == remedy(found.reason) or found == causes.UNKNOWN
    if "full" not in words:
        assert "full" not in found.reason


def test_error_that_is_its_own_cause_has_none_of_the_machine() -> None:
    error, other = OncewayError("a"), OncewayError("b")
    error.__cause__, other.__cause__ = other, error
    assert of_machine(error) is None
    other.__cause__ = of_system("ENOSPC")
    assert of_machine(error) == causes.FULL


def test_causes_differ_in_their_words() -> None:
    known = [one for one in vars(causes).values() if isinstance(one, Cause)]
    assert len({one.reason for one in known}) == len(known)
    assert all(one.todo for one in known)


@pytest.mark.parametrize(("error", "words"), TEMPORARY)
def test_refusal_and_health_say_the_cause(
    error: Exception, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.absent("slow")
    world.slow_disk = True
    loose = world.accepted("loose")
    world.engine.commits._on_failure(error)
    world.turn()
    loose.publish("t", "x", qos=1)
    assert loose.take_all()[0].reason == ReasonCode.QUOTA_EXCEEDED
    told = [text for text in caplog.messages if "loose" in text]
    assert any(words in text for text in told), told
    seen = source(tmp_path)
    seen.broker.disk_lack, seen.times.error = world.broker.disk_lack, str(error)
    (problem,) = problems(seen)
    assert words in problem.what
    assert problem.todo == remedy(cause(error).reason)
    if "full" not in words:
        assert not any("full" in text for text in [*told, problem.what])
    assert "no room" not in Bound.DISK.words


@pytest.mark.parametrize("name", ["EDQUOT", "EROFS", "ENOSPC", "EIO"])
@pytest.mark.parametrize("code", ["SQLITE_IOERR_WRITE", "SQLITE_CANTOPEN"])
def test_write_error_of_sqlite_is_distinguished_by_the_folder(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite uses one error code for a full quota, a read-only disk and a broken disk. So the
    gateway tries to write a file in the same folder.
    """
    error = of_sqlite(code)
    assert cause(error, tmp_path) == cause(error), "the folder takes a file"

    def refuse(*_: object) -> None:
        raise of_system(name)

    monkeypatch.setattr(os, "fsync", refuse)
    assert cause(error, tmp_path) == cause(of_system(name))
    assert cause(of_sqlite("SQLITE_CORRUPT"), tmp_path) == causes.DAMAGED
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("error", "words"), ERRORS, ids=NAMES)
def test_command_says_the_cause_of_any_error_of_the_machine(
    error: Exception,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["onceway", "where", "roof-1", "1"])
    monkeypatch.setattr(script, "_command", lambda _: fail)
    ours = (
        isinstance(error, sqlite3.Error) or words in MACHINE or isinstance(error, PermissionError)
    )
    with pytest.raises(SystemExit if ours else type(error)):
        script.main()
    told = capsys.readouterr().err
    assert told.count("\n") == ours
    if ours and not isinstance(error, PermissionError):
        assert words in told
        assert cause(error).todo in told


@pytest.mark.parametrize("name", SYSTEM)
def test_error_without_advice_gets_that_of_its_cause(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OncewayError("the file cannot be written", "a file") from of_system(name)

    monkeypatch.setattr(sys, "argv", ["onceway", "where", "roof-1", "1"])
    monkeypatch.setattr(script, "_command", lambda _: fail)
    with pytest.raises(SystemExit):
        script.main()
    advice = f". {cause(of_system(name)).todo}" if SYSTEM[name] in MACHINE else ""
    assert capsys.readouterr().err == f"error: a file: the file cannot be written{advice}\n"


@pytest.mark.parametrize(("error", "words"), TEMPORARY)
def test_uplink_does_not_blame_the_landing_place_for_its_own_disk(
    error: Exception, words: str
) -> None:
    if "known cause" not in words:
        assert words in _words(error)
        assert "on this gateway" in _words(error)


def test_start_says_the_cause_of_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    for name, words in SQLITE.items():
        if name not in ("SQLITE_ERROR", "SQLITE_CORRUPT", "SQLITE_NOTADB"):
            found = unusable(tmp_path, of_sqlite(name))
            assert words in str(found)
            assert "store check" not in str(found)


def test_real_errors_of_sqlite_have_their_cause(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (x)")
        database.execute("PRAGMA max_page_count=3")
        with pytest.raises(sqlite3.OperationalError) as full:
            database.execute("INSERT INTO t VALUES (zeroblob(100000))")
        assert cause(full.value) == causes.FULL
        database.execute("PRAGMA query_only=1")
        with pytest.raises(sqlite3.OperationalError) as read_only:
            database.execute("INSERT INTO t VALUES (1)")
        assert cause(read_only.value) == causes.READ_ONLY
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path, timeout=0)) as other:
        one.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError) as busy:
            other.execute("BEGIN IMMEDIATE")
        assert cause(busy.value) == causes.BUSY
    path.write_bytes(b"no database" * 1000)
    with closing(sqlite3.connect(path)) as database:
        with pytest.raises(sqlite3.DatabaseError) as damaged:
            database.execute("SELECT * FROM t")
        assert cause(damaged.value) == causes.DAMAGED
    with pytest.raises(sqlite3.OperationalError) as gone:
        sqlite3.connect(tmp_path / "none" / "x.db")
    assert cause(gone.value) == causes.CANNOT_OPEN


@pytest.mark.parametrize("call", ["ftruncate", "pwrite", "fchown"])
def test_lock_on_a_full_disk_is_held_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> None:
        raise of_system("ENOSPC")

    path = tmp_path / "gateway.lock"
    monkeypatch.setattr(os, call, full)
    with closing(ProcessLock(path)):
        monkeypatch.undo()
        assert holder(path) is not None
    assert holder(path) is None


def test_lock_that_cannot_be_made_says_the_cause(tmp_path: Path) -> None:
    with pytest.raises(OncewayError, match=r"cannot take the lock.*disk is mounted"):
        ProcessLock(tmp_path / "none" / "gateway.lock")


def test_writer_logs_the_cause(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_store(tmp_path, "g").close()
    failed = threading.Event()
    writer = Writer(tmp_path, lambda _: None, lambda _: failed.set(), lambda *_: None)
    writer._database.execute("PRAGMA query_only=1")
    writer.submit(Commit(1, 1, axis=(1, None)))
    assert failed.wait(10)
    writer.stop(0.0, None)
    (line,) = [text for text in caplog.messages if "accepts no data" in text]
    assert "read-only" in line
    assert "full" not in line
