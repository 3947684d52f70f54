"""A power cut at the server of the landing place takes no batch whose rows have left the spool."""

from pathlib import Path

import asyncssh
import pytest

from gateway.uplink.landing import local, open_landing
from hil.faults.loop_disk import LoopDisk, missing
from tests.uplink.conftest import GatewayData
from tests.uplink.servers import SftpServer, sftp_server
from tests.uplink.sftp_kinds import Kind, sftp_of_kind
from tests.uplink.twins import land


@pytest.mark.skipif(bool(missing()), reason=missing() or "")
def test_batch_outlives_a_power_cut_at_an_sftp_server(data: GatewayData, landed, tmp_path) -> None:
    """The server's disk has what the kernel had written when the last row left the spool."""

    def land_here(server: SftpServer) -> None:
        assert land(data, lambda: open_landing(server.url(), server.options)) is None
        assert data.spool_ids() == []

    disk = LoopDisk(tmp_path / "disk")
    (tmp_path / "server").mkdir()
    try:
        with sftp_server(tmp_path / "server") as server:
            server.root = disk.mount
            for count in (1, 2):
                data.add(5)
                land_here(server)
                cut = disk.freeze()
                disk.restart(cut)
                assert len(landed(disk.mount / "landing")) == 5 * count
            data.add(5)
            land_here(server)
        assert len(landed(disk.mount / "landing")) == 15
    finally:
        disk.close()


@pytest.mark.parametrize("kind", [Kind(), Kind("replaces"), Kind("replaces", hardlink=False)])
def test_manifest_is_synced_under_its_final_name(data: GatewayData, tmp_path, kind: Kind) -> None:
    asked = list[str]()

    def note(request: str, path: str) -> None:
        if path.endswith("/000000000001.json") and request in ("rename", "link", "fsync"):
            asked.append(request)
            assert request != "fsync" or data.spool_ids(), "its rows have not left the spool"

    data.add(5)
    with sftp_of_kind(tmp_path / "server", kind) as server:
        server.kind.at = note
        assert land(data, lambda: open_landing(server.url(), server.options)) is None
    assert asked in (["rename", "fsync"], ["link", "fsync"])
    assert data.spool_ids() == []


@pytest.mark.parametrize(
    "error", [asyncssh.SFTPFailure("not for reading"), asyncssh.SFTPPermissionDenied("no")]
)
def test_server_that_syncs_no_file_for_reading_is_good_enough(
    data: GatewayData, landed, tmp_path, error: asyncssh.SFTPError
) -> None:
    def refuse(request: str, path: str) -> None:
        if request == "fsync" and ".incoming" not in path:
            raise error

    data.add(5)
    with sftp_of_kind(tmp_path / "server", Kind()) as server:
        server.kind.at = refuse
        assert land(data, lambda: open_landing(server.url(), server.options)) is None
        assert len(landed(server.root / "landing")) == 5


@pytest.mark.parametrize("when", ["before", "after"])
def test_connection_that_breaks_at_the_sync_keeps_the_rows_until_it_is_done(
    data: GatewayData, landed, tmp_path, when: str
) -> None:
    broken = list[str]()

    def cut(request: str, path: str) -> str | None:
        if request == "fsync" and path.endswith("/000000000001.json"):
            broken.append(path)
            return when if len(broken) == 1 else None
        return None

    data.add(5)
    with sftp_of_kind(tmp_path / "server", Kind()) as server:
        server.kind.at = cut

        def connect() -> object:
            return open_landing(server.url(), server.options)

        assert land(data, connect) is not None  # type: ignore[arg-type]
        assert len(data.spool_ids()) == 5
        assert land(data, connect) is None  # type: ignore[arg-type]
        assert len(broken) == 2, "the second connection syncs what it finds there"
        assert len(landed(server.root / "landing")) == 5


def test_folder_is_synced_again_if_a_kill_came_before_its_sync(
    data: GatewayData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The end of the uplink."""

    synced = list[str]()
    place = f"file://{tmp_path}/landing"

    def dies(path: Path) -> None:
        if (path / "000000000001.json").exists():
            raise Killed
        sync(path)

    def notes(path: Path) -> None:
        synced.extend(["after"] * (not data.spool_ids()) or [path.name])
        sync(path)

    data.add(5)
    sync = local.sync
    monkeypatch.setattr(local, "sync", dies)
    with pytest.raises(Killed):
        land(data, lambda: open_landing(place))
    monkeypatch.setattr(local, "sync", notes)
    assert land(data, lambda: open_landing(place)) is None
    assert "00c0ffee" in synced
