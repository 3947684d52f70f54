"""A gateway's disk that is really full: a tmpfs without free space. The tests need root."""

import os
from contextlib import closing

import pytest

from gateway.errors import OncewayError
from gateway.uplink.cutter import Cutter
from tests.durability.disk import SmallDisk

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs")


@pytest.mark.parametrize("step", ["batch file", "database"])
def test_full_disk_loses_no_row_and_all_rows_land_after_it(
    make_data, drain, landed, tmp_path, monkeypatch, step
):
    with closing(SmallDisk(tmp_path, 4_000_000)) as disk:
        data = make_data(disk.mount / "data")
        data.add(1200)
        before = data.spool_ids()
        write = Cutter._write
        steps = [disk.fill, lambda: None] if step == "batch file" else [lambda: None, disk.fill]
        monkeypatch.setattr(
            Cutter, "_write", lambda *arguments: (steps[0](), write(*arguments), steps[1]())
        )
        with pytest.raises(
            OncewayError,
            match="No space left" if step == "batch file" else "database or disk is full",
        ):
            drain(data, f"file://{tmp_path}/landing", count=200)
        assert data.spool_ids() == before
        monkeypatch.undo()
        disk.free()
        drain(data, f"file://{tmp_path}/landing", count=200)
        assert data.spool_ids() == []
        assert len(landed(tmp_path / "landing")) == 1200


def test_a_full_landing_place_keeps_nothing_of_a_try(make_data, drain, landed, tmp_path):
    data = make_data(tmp_path / "data")
    data.add(10)
    with closing(SmallDisk(tmp_path, 4_000_000)) as disk:
        place = disk.mount / "landing"
        drain(data, f"file://{place}")
        data.add(3000)
        disk.fill()
        os.truncate(disk.mount / "ballast", (disk.mount / "ballast").stat().st_size - 8192)
        for _ in range(3):
            with pytest.raises(OncewayError, match="No space left"):
                drain(data, f"file://{place}", count=3000)
            assert not list(place.rglob(".incoming/*"))
        disk.free()
        drain(data, f"file://{place}", count=3000)
        assert data.spool_ids() == []
        assert len(landed(place)) == 3010
