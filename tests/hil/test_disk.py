"""A disk whose power can be cut, as a run uses it. (That a cut loses what was not synced: tests/durability.)"""

import os
import socket
from pathlib import Path

import pytest

from gateway.errors import OncewayError
from hil.disk import LoopDisk, kept, missing

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


def test_who_is_not_root_has_no_such_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing() == "mounting a loop device needs root"


def test_a_machine_that_refuses_to_mount_is_told_and_no_loop_device_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {"mkfs.ext4": "true", "losetup": f"echo $1 >> {tmp_path}/losetup.log; echo /dev/loop7", "mount": "echo denied >&2; exit 32"}
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(OncewayError, match="denied"):
        LoopDisk(tmp_path / "disk")
    assert (tmp_path / "losetup.log").read_text().split() == ["--find", "--detach"]
