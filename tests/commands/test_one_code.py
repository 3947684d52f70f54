"""Each cause has the same exit code in all commands. Commands that need a store run without a
store, with an empty file, and with a damaged file. Commands that need a running gateway run without
a gateway.
"""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.commands import exit_codes
from gateway.commands import main as script
from gateway.store.recovery import recover
from gateway.store.schema import open_store
from tests.commands.test_no_hang import ASK_GATEWAY, COMMANDS, _words
from tests.commands.test_tree import Run, run
from tests.durability.disk import SmallDisk
from tests.uplink.conftest import GatewayData

__all__ = ["run"]

OF_STORE = {
    *("bridge aside", "bridge discard", "session list", "session show", "session end"),
    *("retained list", "spool discard", "spool land", "spool status"),
    *("store backup", "store downgrade", "uplink claim", "uplink status", "where"),
}
OF_NONE = OF_STORE | {"backup", "store check", "store salvage"}
"""Commands that fail without a store. OF_STORE lacks those that accept a damaged store: `store
check` reports it, and `store salvage` repairs it.
"""
READ_ANYWAY = {"spool land"}
"""Commands that do not read the gateway's own store, but a copy of a store elsewhere."""
DAMAGE = {"empty": b"", "garbage": b"no database" * 1000, "none": None, "no folder": None}
OF_GATEWAY = sorted(
    {*ASK_GATEWAY, "bridge again", "clock show", "clock trust", "device ping"}
    - {"doctor", "session list", "session show", "session end", "bridge discard"}
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a configuration. Return its data directory, which does not exist yet."""
    data, config = tmp_path / "data", tmp_path / "gateway.toml"
    config.write_text(
        f'[gateway]\nname = "site-1"\ndata = "{data}"\n[[listener]]\nbind = "127.0.0.1:0"\n'
        f'[uplink]\nlanding = "file://{tmp_path}/landing"\n'
    )
    monkeypatch.setenv("ONCEWAY_PASSPHRASE", "a passphrase of this test")
    monkeypatch.chdir(tmp_path)
    return data


def _run(
    run: Run, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str
) -> tuple[int, str]:
    monkeypatch.setenv("ONCEWAY_CONFIG", str(folder.parent / "gateway.toml"))
    words = _words(name, folder.parent, "/nowhere/port")
    if name == "spool land":
        words[2] = str(folder)
    code, _, err = run(*words, *more)
    return code, err


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", sorted(OF_NONE))
def test_store_that_cannot_be_used_has_one_code(
    name: str, kind: str, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind in ("empty", "garbage") and name not in OF_STORE:
        return
    if kind != "no folder":
        folder.mkdir()
    if (content := DAMAGE[kind]) is not None:
        (folder / "gateway.db").write_bytes(content)
        (folder / "uplink.key").touch()
    code, err = _run(run, name, folder, monkeypatch)
    assert (code, err.startswith("error: ")) == (exit_codes.STORE, True), err
    assert str(folder) in err


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if os.geteuid():
        pytest.skip("mounting a tmpfs needs root")
    made = SmallDisk(tmp_path, 8 << 20)
    yield made
    made.close()


@pytest.mark.parametrize("state", ["read-only", "full"])
def test_disk_that_takes_no_data_is_the_cause_that_each_command_says(
    state: str, disk: SmallDisk, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own messages are ambiguous: "unable to open" can mean missing rights, and "disk I/O
    error" a broken disk. So each command names the real cause.
    """
    folder.symlink_to(disk.mount)
    with closing(open_store(disk.mount, "site-1")) as database:
        recover(database, None, 16)
    if state == "full":
        disk.fill()
    else:
        disk.let_write(False)
    words = {"read-only": "mount the disk for writing", "full": "Make room"}[state]
    for name in sorted(OF_NONE - READ_ANYWAY):
        code, err = _run(run, name, folder, monkeypatch)
        assert code, name
        assert words in err, (name, err)
        assert err.count("\n") == 1, err


@pytest.mark.parametrize("name", [*OF_GATEWAY, "session list"])
def test_gateway_that_does_not_run_has_one_code(
    name: str, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    more = ["--site"] if name == "session list" else []
    code, err = _run(run, name, folder, monkeypatch, *more)
    assert (code, str(folder) in err) == (exit_codes.NO_GATEWAY, True), err


def test_no_command_about_a_store_is_forgotten() -> None:
    """If this fails, add the new command to one of the lists above."""
    groups = {name.split()[0] for name in OF_STORE} - {"uplink"}
    named = OF_NONE | set(OF_GATEWAY) | {"store restore"}
    assert {name for name in COMMANDS if name.split()[0] in groups} <= named


def test_an_error_of_sqlite_is_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(script, "_command", lambda _: fail)
    code, out, err = run("where", "roof-1", "1")
    assert (code, out) == (exit_codes.STORE, "")
    assert err == (
        "error: the database cannot be used: an error without a known cause (disk I/O error). See"
        " the log\n"
    )
    assert "sqlite3" in sys.modules


@pytest.mark.parametrize("name", sorted(OF_STORE - {"spool land"} | {"store check"}))
def test_account_without_rights_to_a_store_has_one_code(
    name: str, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gives the same error for a file without rights and for a damaged one: it cannot open
    the file.
    """

    def closed(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path / "hidden")  # fails like a folder without rights

    folder.mkdir()
    GatewayData(folder)
    for file in ("uplink.key", "gateway.db-wal", "gateway.db-shm"):
        (folder / file).touch()
    for place in ("store.views", "store.check", "store.backup", "store.downgrade", "uplink.spool"):
        for opener in ("connect", "connect_to_read"):
            monkeypatch.setattr(f"gateway.{place}.{opener}", closed, raising=False)
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)
    code, err = _run(run, name, folder, monkeypatch)
    assert (code, "sudo" in err) == (exit_codes.NOT_ALLOWED, True), err
