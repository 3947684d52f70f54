"""`onceway store`: its texts for people, and its JSON for programs."""

import json
import os
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.store.cli import app
from gateway.store.schema import FILE, StoreError, connect_to_read
from gateway.system.lock import Locked, ProcessLock
from tests.store.test_salvage import damage, filled

runner = CliRunner()


@pytest.mark.parametrize("name", ["site", "site?mode=rwc#1%41"])
def test_sound_store_is_reported_as_sound_for_any_folder_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    filled(folder)
    checked = runner.invoke(app, ["check", "--data", str(folder)])
    assert (checked.exit_code, checked.output) == (0, f"{folder}: the store is sound\n")


def test_a_damaged_store_is_found_and_salvaged(tmp_path: Path) -> None:
    filled(tmp_path)
    damage(tmp_path, 60)
    checked = runner.invoke(app, ["check", "--data", str(tmp_path), "--json"])
    assert checked.exit_code == 1
    assert json.loads(checked.output)["sound"] is False
    assert (
        f"onceway store salvage --data {tmp_path}"
        in runner.invoke(app, ["check", "--data", str(tmp_path)]).output
    )
    salvaged = runner.invoke(app, ["salvage", "--data", str(tmp_path)])
    assert salvaged.exit_code == 0
    assert "Lost: spool: " in salvaged.output
    assert runner.invoke(app, ["check", "--data", str(tmp_path)]).exit_code == 0


def test_salvage_refuses_beside_a_running_gateway(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(ProcessLock(tmp_path / "gateway.lock")):
        refused = runner.invoke(app, ["salvage", "--data", str(tmp_path)])
    assert isinstance(refused.exception, Locked)


@pytest.mark.parametrize("command", ["check", "salvage"])
def test_missing_store_is_mentioned(tmp_path: Path, command: str) -> None:
    assert "there is no store here" in str(
        runner.invoke(app, [command, "--data", str(tmp_path)]).exception
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_salvaged_by_root_belong_to_the_service(tmp_path: Path) -> None:
    filled(tmp_path)
    for path in (tmp_path, tmp_path / FILE):
        os.chown(path, 4711, 4712)
    (tmp_path / FILE).chmod(0o640)
    assert runner.invoke(app, ["salvage", "--data", str(tmp_path)]).exit_code == 0
    for name in (FILE, "gateway.lock", "uplink.lock"):
        found = (tmp_path / name).stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4711, 4712, 0o640), name


def test_a_store_that_this_account_may_not_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    monkeypatch.setattr(
        "gateway.store.check.connect_to_read", lambda path: connect_to_read(path / "hidden")
    )
    found = runner.invoke(app, ["check", "--data", str(tmp_path)]).exception
    assert isinstance(found, StoreError)
    assert "the file cannot be opened" in str(found)
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)
    found = runner.invoke(app, ["check", "--data", str(tmp_path)]).exception
    assert isinstance(found, StoreError)
    assert "this account may not look at the store" in str(found)
