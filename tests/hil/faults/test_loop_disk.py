"""A disk whose power a run can cut. tests/durability shows that a cut loses data without fsync."""

import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

import pytest

from gateway.errors import OncewayError
from hil.faults.loop_disk import PROGRAMS, LoopDisk, kept, may_mount, missing

needs_root = pytest.mark.skipif(bool(missing()), reason=missing() or "")


def mounted(folder: Path) -> bool:
    return any(str(folder) in line for line in Path("/proc/mounts").read_text().splitlines())


@needs_root
def test_files_outlive_the_disk_and_nothing_stays_mounted(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    with kept(folder) as disk:
        assert mounted(folder)
        (folder / "batches").mkdir()
        (folder / "batches" / "1").write_text("one")
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / "control.sock"))  # of a gateway that was killed
    assert not mounted(folder)
    assert sorted(path.name for path in folder.rglob("*")) == ["1", "batches"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gateway"]
    assert disk.mount == folder


@needs_root
def test_a_power_cut_waits_for_a_reader_and_takes_what_was_not_synced(tmp_path: Path) -> None:
    with kept(tmp_path / "table") as disk:
        (disk.mount / "old").write_text("synced")
        os.sync()
        reader = (disk.mount / "old").open()
        (disk.mount / "new").write_text("not synced")
        Timer(0.3, reader.close).start()
        disk.restart(disk.freeze())
        assert reader.closed
        assert (disk.mount / "old").read_text() == "synced"
        assert not (disk.mount / "new").exists()


def test_loop_disk_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing() == "mounting a loop device needs root"


def test_root_may_not_mount_everywhere() -> None:
    assert may_mount("Name:\tx\nCapEff:\t000001ffffffffff\n")
    assert not may_mount("Name:\tx\nCapEff:\t00000000a80425fb\n")  # as in a container
    assert not may_mount("")


@pytest.mark.parametrize(
    ("programs", "why"),
    [
        ({"mkfs.ext4": None}, "mkfs.ext4 is not installed (Debian's e2fsprogs)"),
        ({"umount": None}, "umount is not installed (Debian's mount)"),
        (
            {"losetup": "echo 'losetup: cannot find an unused loop device' >&2; exit 1"},
            "there is no free loop device (losetup: cannot find",
        ),
        ({"losetup": "echo /dev/loop-of-nobody"}, "there is no free loop device"),
    ],
)
def test_missing_tools_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str | None], why: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("hil.faults.loop_disk.may_mount", lambda _: True)
    monkeypatch.setattr(Path, "exists", lambda _: True)
    for name, does in ({**dict.fromkeys(PROGRAMS, "true"), **programs}).items():
        if does:
            (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
            (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (missing() or "").startswith(why)


def test_a_disk_whose_copy_cannot_be_mounted_is_closed_without_another_error(
    tmp_path: Path,
) -> None:
    disk = object.__new__(LoopDisk)
    disk.mount = tmp_path  # where nothing is mounted any more
    disk._folder = TemporaryDirectory(dir=tmp_path)
    disk.close()
    assert not Path(disk._folder.name).exists()


def test_a_machine_that_refuses_to_mount_is_reported_and_no_loop_device_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {
        "mkfs.ext4": "true",
        "losetup": f"echo $1 >> {tmp_path}/losetup.log; echo /dev/loop7",
        "mount": "echo denied >&2; exit 32",
    }
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(OncewayError, match="denied"):
        LoopDisk(tmp_path / "disk")
    assert (tmp_path / "losetup.log").read_text().split() == ["--find", "--detach"]
