"""The right to land under a gateway's name: two installations with one name, copies of a store, and
a landing place that was moved.
"""

import json
import shutil
import socket
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gateway.config import UplinkSection
from gateway.uplink import epoch, owner
from gateway.uplink.cutter import Cutter
from gateway.uplink.landing import Unreachable, open_landing
from gateway.uplink.owner import OwnedByAnother
from gateway.uplink.spool import Cut, Spool
from tests.uplink.sftp_kinds import Kind, sftp_of_kind
from tests.uplink.twins import land


@pytest.fixture
def place(tmp_path):
    return tmp_path / "landing"


def copy(data, make_data, path: Path):
    """Copy the database and the batches, as a backup does. Return the copy."""
    twin = make_data(path, epoch="ffffffff")
    with data.db() as source, closing(sqlite3.connect(path / "gateway.db")) as target:
        source.backup(target)
    if (data.path / "batches").exists():
        shutil.copytree(data.path / "batches", path / "batches", dirs_exist_ok=True)
    twin.added = data.added
    return twin


def landed_everywhere(place, landed):
    """Return the landed rows of each epoch of site-1."""
    return {
        folder.name: landed(place, epoch=folder.name)
        for folder in (place / "site-1").iterdir()
        if len(folder.name) == 8
    }


def test_second_installation_with_the_same_name_is_refused_and_learns_the_owner(
    data, drain, make_data, place, tmp_path, landed
):
    data.add(10)
    drain(data, place)
    other = make_data(tmp_path / "other", epoch="deadbeef")
    other.add(10)
    with pytest.raises(OwnedByAnother, match=r"site-1 belongs to another gateway here \(host "):
        drain(other, place)
    assert len(other.spool_ids()) == 10
    assert not (place / "site-1" / "deadbeef").exists()


def test_claim_hands_the_name_over(data, drain, make_data, place, tmp_path, landed, onceway):
    data.add(10)
    drain(data, place)
    other = make_data(tmp_path / "other", epoch="deadbeef")
    other.add(10, device="sensor-2")
    done = onceway("uplink", "claim", "--data", other.path, "--landing", place)
    assert done.returncode == 0, done.stderr
    drain(other, place)
    assert len(landed(place, epoch="deadbeef")) == 10
    data.add(1)
    with pytest.raises(OwnedByAnother):
        drain(data, place)


def test_an_empty_landing_place_is_an_outage_until_claimed(data, drain, place, tmp_path, landed):
    """The folder is empty because its file system is not mounted. The uplink waits until its owner
    mark is there again.
    """
    data.add(10)
    drain(data, place)
    place.rename(tmp_path / "unmounted")
    data.add(5)
    with pytest.raises(Unreachable, match=r"owner mark site-1/owner\.json is gone"):
        drain(data, place)
    assert len(data.spool_ids()) == 5
    (tmp_path / "unmounted").rename(place)
    drain(data, place)
    assert len(landed(place)) == 15


def test_claim_at_a_new_place_numbers_from_one_and_keeps_keys(data, drain, place, tmp_path, landed):
    data.add(10, device=None)
    drain(data, place)
    data.add(5, device=None)
    spool = Spool(data.path)
    epoch.claim(spool, open_landing(str(tmp_path / "new")))
    spool.close()
    assert data.meta("epoch") != "00c0ffee"
    drain(data, tmp_path / "new")
    assert [row[:3] for row in landed(tmp_path / "new", epoch=data.meta("epoch"))] == [
        ("@site-1", 0x00C0FFEE, n) for n in range(11, 16)
    ]


@pytest.mark.few(4)
@pytest.mark.parametrize("device", ["sensor-1", None])
@pytest.mark.parametrize(
    ("before", "unlanded", "after"), [(20, 0, 30), (20, 7, 30), (0, 7, 30), (20, 25, 3)]
)
def test_a_restored_backup_goes_on_under_a_new_epoch_and_loses_and_doubles_nothing(
    data, drain, make_data, place, tmp_path, landed, device, before, unlanded, after
):
    """before: readings that landed before the backup. unlanded: readings that wait in the backup,
    and that the old store landed later. after: readings that the old store received after the
    backup.
    """
    data.add(before, device)
    drain(data, place)
    data.add(unlanded, device)
    backup = copy(data, make_data, tmp_path / "backup")
    data.add(after, device)
    drain(data, place)
    old = landed(place)
    backup.added += 1000  # the restored store uses the same spool ids for other readings
    backup.add(12, device)
    drain(backup, place)
    everywhere = landed_everywhere(place, landed)
    assert everywhere.pop("00c0ffee") == old
    assert list(everywhere) == [backup.meta("epoch")]
    rows = old + everywhere[backup.meta("epoch")]
    assert len({row[:3] for row in rows}) == len(rows)
    assert [int.from_bytes(row[5][:8], "big") for row in rows] == [
        *range(1, data.added + 1),
        *range(backup.added - 11, backup.added + 1),
    ]
    assert backup.spool_ids() == []
    assert backup.meta("restored"), "the gateway's next start forgets what may be stale"


def test_backup_that_was_not_overtaken_continues(data, drain, make_data, place, tmp_path, landed):
    data.add(25)
    drain(data, place)
    backup = copy(data, make_data, tmp_path / "backup")
    backup.add(12)
    drain(backup, place)
    assert [row[2] for row in landed(place)] == list(range(1, 38))
    assert backup.meta("restored") is None


def test_a_twin_that_still_runs_is_shut_out_by_the_copy_that_noticed(
    data, drain, make_data, place, tmp_path, landed
):
    data.add(10)
    drain(data, place)
    clone = copy(data, make_data, tmp_path / "clone")
    data.add(10)
    drain(data, place)
    clone.added += 1000
    clone.add(10)
    drain(clone, place)
    data.add(10)
    with pytest.raises(OwnedByAnother):
        drain(data, place)


def test_a_copy_whose_numbers_were_cleaned_away_is_recognised_by_the_mark(
    data, drain, make_data, place, tmp_path, landed
):
    data.add(10)
    drain(data, place)
    backup = copy(data, make_data, tmp_path / "backup")
    data.add(100)
    drain(data, place)
    drain(data, place)  # the second run updates the owner mark
    assert json.loads((place / "site-1" / "owner.json").read_bytes())["landed"] == 11
    shutil.rmtree(place / "site-1" / "00c0ffee")
    backup.added += 1000
    backup.add(10)
    drain(backup, place)
    assert not (place / "site-1" / "00c0ffee").exists()
    assert len(landed(place, epoch=backup.meta("epoch"))) == 10


def test_a_cut_batch_that_the_disk_lost_is_sent_under_a_new_epoch(
    data, drain, place, landed, monkeypatch
):
    """The batch's file is damaged and cannot be made again, as if a newer pyarrow wrote other
    bytes.
    """
    data.add(10)
    spool = Spool(data.path)
    Cutter(spool, data.path, UplinkSection(landing="/x", batch_count=10)).cut()
    spool.close()
    (data.path / "batches" / "000000000001.parquet").write_bytes(b"torn")
    with data.db() as db:
        db.execute("UPDATE batch SET sha256 = ?", ("0" * 64,))
    drain(data, place)
    assert not (place / "site-1" / "00c0ffee").exists()
    assert [row[2] for row in landed(place, epoch=data.meta("epoch"))] == list(range(1, 11))


@pytest.mark.parametrize("name", ["000000000002.parquet", "000000000002.json"])
@pytest.mark.parametrize(
    "damage",
    [lambda old: old[:50] + b"X" + old[51:], lambda old: old[:100], lambda old: b""],
    ids=["byte", "cut", "empty"],
)
def test_a_batch_that_was_damaged_after_it_was_published_is_sent_under_a_new_epoch(
    data, drain, place, landed, monkeypatch, name, damage
):
    """The power fails after a batch was published, before its rows leave the spool. After the next
    start, the uplink finds other bytes than the ones that it published. It leaves them, and lands
    the rows again.
    """
    data.add(30)
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "landed", landed_until(2))
        with pytest.raises(PowerCut):
            drain(data, place)
    victim = place / "site-1" / "00c0ffee" / name
    victim.write_bytes(left := damage(victim.read_bytes()))
    drain(data, place)
    assert victim.read_bytes() == left
    assert [row[2] for row in landed(place, epoch=data.meta("epoch"))] == list(range(11, 31))
    assert data.spool_ids() == []


class PowerCut(BaseException):
    """An exception that stands for a power cut: the uplink does nothing after it."""


def landed_until(number: int):
    """Return a replacement of `Spool.landed` that raises PowerCut before it removes the rows of
    batch `number`.
    """
    original = Spool.landed

    def landed(spool: Spool, cut: Cut) -> None:
        if cut.number == number:
            raise PowerCut
        original(spool, cut)

    return landed


def test_a_cut_batch_that_the_disk_lost_is_made_again(data, drain, place, landed):
    data.add(10)
    spool = Spool(data.path)
    cut = Cutter(spool, data.path, UplinkSection(landing="/x", batch_count=10)).cut()
    spool.close()
    (data.path / "batches" / "000000000001.parquet").unlink()
    drain(data, place)
    assert data.meta("epoch") == "00c0ffee"
    assert (
        json.loads((place / "site-1" / "00c0ffee" / "000000000001.json").read_bytes())["sha256"]
        == cut.sha256
    )


@pytest.mark.parametrize(
    ("kind", "when"),
    [
        (Kind(), "before"),
        (Kind("replaces"), "after"),
        (Kind("replaces", hardlink=False), "before"),
        pytest.param(Kind(), "after", marks=pytest.mark.soak),
        pytest.param(Kind("replaces"), "before", marks=pytest.mark.soak),
        pytest.param(Kind("replaces", hardlink=False), "after", marks=pytest.mark.soak),
    ],
)
def test_a_mark_cut_at_any_request_is_finished_under_another_host_name(
    data, tmp_path, monkeypatch, kind, when
):
    with sftp_of_kind(tmp_path / "server", kind) as server:

        def connect():
            return open_landing(server.url(), server.options)

        data.add(5)
        count, reached = 0, True
        while reached:
            count += 1
            shutil.rmtree(server.root / "landing", ignore_errors=True)
            with data.db() as db:
                db.execute("DELETE FROM meta WHERE key GLOB 'uplink.owner*'")
            left = [count]

            def at(request, path, left=left):
                left[0] -= "owner.json" in path
                return when if left[0] == 0 and "owner.json" in path else None

            server.kind.at = at
            monkeypatch.setattr(socket, "gethostname", lambda: "before")
            with Spool(data.path) as spool, suppress(Unreachable):
                landing = connect()
                owner.check(spool, landing)
            reached = left[0] <= 0
            server.kind.at = lambda request, path: None
            monkeypatch.setattr(socket, "gethostname", lambda: "after")
            landing = connect()
            with Spool(data.path) as spool:
                owner.check(spool, landing)
            landing.close()
        assert count > 2
        assert land(data, connect) is None
        assert data.spool_ids() == []


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"[1]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"a": ' * 100_000,
        b'{"owner": "x", "epoch": "x", "landed": 1e999, "host": "x", "since": "x"}',
        b'{"owner": "x", "epoch": "x", "landed": NaN, "host": "x", "since": "x"}',
        b'{"owner": "x", "epoch": "x", "landed": "1", "host": "x"}',
        b'{"owner": "x", "epoch": "x", "landed": %s, "host": "x", "since": "x"}' % (b"9" * 5000),
    ],
    ids=range(11),
)
def test_damaged_owner_mark_is_reported_and_mended_by_a_claim(data, drain, place, onceway, damaged):
    data.add(5)
    drain(data, place)
    (place / "site-1" / "owner.json").write_bytes(damaged)
    data.add(5)
    with pytest.raises(OwnedByAnother, match=r"owner mark site-1/owner\.json is damaged.* claim"):
        drain(data, place)
    assert len(data.spool_ids()) == 5
    done = onceway("uplink", "claim", "--data", data.path, "--landing", place)
    assert done.returncode == 0, done.stderr
    drain(data, place)
    assert data.spool_ids() == []


def test_a_backup_that_is_restored_twice_is_refused_until_a_claim(
    data, drain, make_data, place, tmp_path, landed, onceway
):
    data.add(10)
    drain(data, place)
    first, second = (copy(data, make_data, tmp_path / name) for name in ("first", "second"))
    data.add(10)
    drain(data, place)
    for number, backup in enumerate((first, second), 1):
        backup.added += 1000 * number
        backup.add(10)
    drain(first, place)
    with pytest.raises(OwnedByAnother):
        drain(second, place)
    assert len(second.spool_ids()) == 10
    done = onceway("uplink", "claim", "--data", second.path, "--landing", place)
    assert done.returncode == 0, done.stderr
    drain(second, place)
    everywhere = landed_everywhere(place, landed)
    assert sorted(len(rows) for rows in everywhere.values()) == [10, 10, 20]
    assert len({row[5] for rows in everywhere.values() for row in rows}) == 40


def test_gateway_that_is_refused_ends_with_a_code_of_its_own(
    data, drain, make_data, place, onceway
):
    data.add(10)
    drain(data, place)
    other = make_data(place.with_name("other"), epoch="deadbeef")
    other.add(10)
    told = onceway("uplink", "run", "--data", other.path, "--landing", place, "--once")
    assert told.returncode == 11
    assert "site-1 belongs to another gateway here" in told.stderr
