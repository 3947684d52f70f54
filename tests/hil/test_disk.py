"""A disk whose power can be cut, as a run uses it. (That a cut loses what was not synced: tests/durability.)"""

import os
import socket
from pathlib import Path

import pytest

from hil.disk import kept, missing

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
