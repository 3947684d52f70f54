"""Backups at the landing place: the newest backups stay, whatever their size, and a backup that
fails is reported.
"""

import json
import sqlite3
import subprocess
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.backup import landing as at_landing
from gateway.backup.landing import put, remove_old
from gateway.commands import control_client as control
from gateway.errors import OncewayError
from gateway.system.last_backup import LATE_S, LastBackup, last_backup
from gateway.system.lock import ProcessLock
from gateway.uplink.landing import Landing, Unreachable, open_landing
from tests.backup.test_backup import backed_up, onceway, site
from tests.service.process import gateway

__all__ = ["site"]
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def local(tmp_path: Path) -> Landing:
    return open_landing(f"file://{tmp_path}/landing")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    file = tmp_path / "whole"
    file.write_bytes(bytes(range(256)) * 10)
    return file


def stored(place: Landing) -> list[str]:
    return sorted(name for name in place.names_in("site-7/backups") if not name.startswith("."))


def make(place: Landing, file: Path, *times: datetime, keep: int = 7) -> None:
    for now in times:
        put(place, "site-7", "00c0ffee", file, now)
        remove_old(place, "site-7", keep, now)


def test_backup_that_reads_back_wrong_does_not_stay(
    local: Landing, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(local, whole, NOON, keep=1)
    before, create = stored(local), local.create
    with monkeypatch.context() as patch:
        patch.setattr(local, "create", lambda name, data: create(name, data[::-1]))
        for day in (1, 2):
            with pytest.raises(Unreachable, match="reads back with other bytes"):
                put(local, "site-7", "00c0ffee", whole, NOON + day * DAY)
            assert stored(local) == before
    with monkeypatch.context() as patch:

        def lost(name: str, data: bytes) -> bool:
            raise Unreachable("the connection broke", local.url)

        patch.setattr(local, "holds", lost)
        with pytest.raises(Unreachable, match="the connection broke"):
            put(local, "site-7", "00c0ffee", whole, NOON + 3 * DAY)
    assert stored(local) == before
    make(local, whole, NOON + 3 * DAY, keep=2)
    assert stored(local)[:1] == before, "no damaged one counts among the backups to keep"


@pytest.mark.parametrize("step", [timedelta(minutes=1), DAY, 7 * DAY, 30 * DAY], ids=str)
def test_fixed_number_of_backups_is_kept_at_any_interval(
    local: Landing, whole: Path, step: timedelta
) -> None:
    times = [NOON + index * step for index in range(9)]
    make(local, whole, *times)
    assert stored(local) == [f"{now:%Y%m%dT%H%M%SZ}-00c0ffee.owback" for now in times[-7:]]


def test_newest_backup_is_kept_despite_wrong_clocks(local: Landing, whole: Path) -> None:
    make(local, whole, datetime(2038, 1, 1, tzinfo=UTC), NOON, NOON + DAY, keep=2)
    assert [name[:8] for name in stored(local)] == ["20260601", "20260602"]
    make(local, whole, datetime(1970, 1, 1, tzinfo=UTC), keep=2)
    assert [name[:8] for name in stored(local)] == ["19700101", "20260602"]


def test_backups_under_names_of_older_versions_go_when_enough_newer_ones_are_there(
    local: Landing, whole: Path
) -> None:
    old = [f"{day}.owback" for day in range(7)]
    for name in [*old, "notes.txt", "by-hand.owback"]:
        local.replace(f"site-7/backups/{name}", b"x")
    make(local, whole, *(NOON + index * DAY for index in range(6)))
    assert set(old) <= set(stored(local))
    make(local, whole, NOON + 6 * DAY)
    assert not set(old) & set(stored(local))
    assert len(stored(local)) == 7 + 2, "files of others stay"


def test_a_cut_one_never_has_a_first_piece(
    local: Landing, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_landing, "PIECE", 1000)
    made = local.create

    def cut(name: str, data: bytes) -> bool:
        if name.endswith(".001"):
            raise OncewayError("the line is cut")
        return made(name, data)

    monkeypatch.setattr(local, "create", cut)
    with pytest.raises(OncewayError, match="cut"):
        make(local, whole, NOON)
    assert [name[-4:] for name in stored(local)] == [".002"]
    monkeypatch.setattr(local, "create", lambda name, data: made(name, data) and False)
    make(local, whole, NOON + DAY)  # the answer was lost: the repeated request finds the piece
    assert {name[:8] for name in stored(local)} == {f"{NOON + DAY:%Y%m%d}"}


def test_a_name_that_exists_is_never_replaced(local: Landing, whole: Path, tmp_path: Path) -> None:
    make(local, whole, NOON)
    other = tmp_path / "other"
    other.write_bytes(b"of another gateway of this name")
    with pytest.raises(OncewayError, match="already"):
        make(local, other, NOON)
    (name,) = stored(local)
    assert local.read(f"site-7/backups/{name}") == whole.read_bytes()


def to_landing(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return onceway("backup", "--to-landing", *options, "--config", site / "gateway.toml")


async def test_a_backup_that_failed_is_a_problem_until_one_is_good(
    site: Path, tmp_path: Path
) -> None:
    config, data = site / "gateway.toml", site / "data"
    backed_up(site, tmp_path / "b")
    (site / "landing").write_text("no folder")
    done = to_landing(site)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert f"file://{site}/landing" in done.stderr
    async with gateway(data, "--config", str(config)) as running:
        (found,) = control.ask(data, do="everything")
        (problem,) = (row for row in found["problems"] if row["part"] == "backup")
        assert f"the last backup failed: file://{site}/landing" in problem["what"]
        assert "there is no backup yet" in problem["what"]
        assert "journalctl" in problem["todo"]
        (site / "landing").unlink()
        assert to_landing(site).returncode == 0
        (found,) = control.ask(data, do="everything")
        assert not [row for row in found["problems"] if row["part"] == "backup"]
        await running.end()


def test_backup_is_refused_where_a_folder_seems_not_to_be_mounted(
    site: Path, tmp_path: Path
) -> None:
    backed_up(site, tmp_path / "b")
    with closing(sqlite3.connect(site / "data/gateway.db")) as store:
        store.execute(
            "INSERT INTO batch (number, first, last, rows, bytes, sha256, cut, landed)"
            " VALUES (1, 1, 1, 1, 1, '', 0, 0)"
        )
        store.commit()
    done = to_landing(site)
    assert (done.returncode, "Is the right place mounted?" in done.stderr) == (1, True)
    assert not (site / "landing/site-7/backups").exists()
    noted = last_backup(site / "data")
    assert noted is not None
    assert "owner mark" in (noted.error or "")


@pytest.mark.parametrize("lacks", ["passphrase", "landing", "store", "old"])
def test_each_failure_is_noted(site: Path, tmp_path: Path, lacks: str) -> None:
    """lacks: the thing that the timer's command does not find; "old": it cannot remove an old
    backup. The command's output goes only to the log.
    """
    config, data = site / "gateway.toml", site / "data"
    backed_up(site, tmp_path / "b")
    words = {"passphrase": "passphrase is empty", "landing": "there is no section [uplink]"}
    if lacks == "landing":
        config.write_text(f'gateway.data = "{data}"\n[[listener]]\nbind = "127.0.0.1:0"\n')
    elif lacks == "store":
        (data / "gateway.db").write_bytes(b"no database")
        words[lacks] = "gateway.db"
    elif lacks == "old":  # an old backup that cannot be removed
        (site / "landing/site-7/backups/20200101T000000Z-00c0ffee.owback").mkdir(parents=True)
        words[lacks] = "cannot remove site-7/backups/20200101T000000Z-00c0ffee.owback"
    done = onceway(
        *("backup", "--to-landing", "--keep", "1", "--config", config),
        passphrase="" if lacks == "passphrase" else "correct horse",
    )
    assert done.returncode != 0
    assert words[lacks] in done.stderr
    note = last_backup(data)
    assert note is not None
    assert words[lacks] in (note.problem(data, None) or "")
    assert (note.landed is not None) == (lacks == "old")


def test_a_backup_that_was_killed_did_not_end(tmp_path: Path) -> None:
    lock = ProcessLock(tmp_path / "backup.lock")
    LastBackup(0).begin(tmp_path)
    note = last_backup(tmp_path)
    assert note is not None
    assert note.problem(tmp_path, None) is None, "it runs"
    lock.close()
    assert "did not end" in (note.problem(tmp_path, None) or "")


def test_leftovers_of_a_killed_backup_are_removed(site: Path, tmp_path: Path) -> None:
    left = site / "data/.backup-killed"
    left.mkdir(parents=True)
    (left / "whole").write_bytes(b"half of it")
    backed_up(site, tmp_path / "b")
    assert not left.exists()


def test_two_backups_at_once_are_refused(site: Path, tmp_path: Path) -> None:
    backed_up(site, tmp_path / "b")
    lock = ProcessLock(site / "data/backup.lock")
    done = to_landing(site)
    lock.close()
    assert (done.returncode, "already in use" in done.stderr) == (4, True)


@pytest.mark.parametrize("timed", [True, False])
def test_backups_that_the_timer_no_longer_makes_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: bool
) -> None:
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    if timed:
        monkeypatch.setenv("INVOCATION_ID", "0" * 32)
    note = LastBackup(0).begin(tmp_path).succeed(tmp_path, "file:///there")
    now = time.time_ns() // 1000
    assert note.problem(tmp_path, now + (LATE_S - 60) * 1_000_000) is None
    late = note.problem(tmp_path, now + (LATE_S + 60) * 1_000_000)
    assert ("no backup has been made for 8 days" in (late or "")) == timed
    assert note.problem(tmp_path, None) is None, "the time is not known"


def test_a_note_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    for text in ("", "{}", json.dumps({"began": "yesterday"})):
        (tmp_path / "backup.json").write_text(text)
        assert last_backup(tmp_path) is None
    LastBackup(0).begin(tmp_path).fail(tmp_path, "no room")
    note = last_backup(tmp_path)
    assert note is not None
    assert note.error == "no room"


def test_the_note_follows_no_link(tmp_path: Path) -> None:
    """Root writes the note into a folder of another account. A link in this folder must not lead
    root to another file.
    """
    target = tmp_path / "of-root"
    target.write_text("untouched")
    for name in ("backup.json", "backup.json.new"):
        (tmp_path / name).symlink_to(target)
    LastBackup(0).begin(tmp_path)
    assert target.read_text() == "untouched"
    assert not (tmp_path / "backup.json").is_symlink()


def test_a_backup_goes_to_a_file_or_to_the_landing_place(site: Path, tmp_path: Path) -> None:
    for arguments in ((), (tmp_path / "b", "--to-landing")):
        done = onceway("backup", *arguments, "--config", site / "gateway.toml")
        assert (done.returncode, "name a file, or give --to-landing" in done.stderr) == (2, True)


def test_backup_of_a_clock_that_was_ahead_is_a_problem(tmp_path: Path) -> None:
    note = LastBackup(began=AHEAD, ended=AHEAD, landed=AHEAD, timed=True)
    assert "clock" in (note.problem(tmp_path, AHEAD - 86_400_000_000) or "")
    assert note.problem(tmp_path, AHEAD - 1_000_000) is None


AHEAD = 2_208_988_800_000_000
"""A time in 2040, in µs UTC."""
