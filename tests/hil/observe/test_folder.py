import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import OncewayError
from hil.observe import folder


def test_a_disk_that_a_killed_run_left_mounted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "history.jsonl").touch()
    disk = tmp_path / "gateway"

    def busy(*_: Any) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(disk))

    monkeypatch.setattr(shutil, "rmtree", busy)
    with pytest.raises(OncewayError) as told:
        folder.fresh(tmp_path)
    assert str(told.value) == (
        f"{disk}: cannot create the folder of the run (Device or resource busy). "
        "A run that was killed has left its disk mounted here: unmount it"
    )
