"""`onceway spool status` and `onceway spool discard`, for rows that wait without an uplink."""

import asyncio
import json
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.config import UplinkSection
from gateway.store.check import check
from gateway.system.lock import ProcessLock
from gateway.uplink.cutter import Cutter
from gateway.uplink.discard import discard, waiting
from gateway.uplink.spool import Spool
from tests.service.process import gateway
from tests.uplink.conftest import GatewayData, Onceway


def config(tmp_path: Path, data: GatewayData, uplink: bool) -> Path:
    file = tmp_path / "gateway.toml"
    file.write_text(
        f'[gateway]\nname = "{data.name}"\ndata = "{data.path}"\ntrust_clock = true\n'
        '[[listener]]\nbind = "127.0.0.1:0"\nanonymous = true\n'
        + (f'[uplink]\nlanding = "file://{tmp_path}/landing"\n' if uplink else "")
    )
    return file


def cut_one(data: GatewayData, count: int) -> None:
    with Spool(data.path) as spool:
        settings = UplinkSection(landing="file:///nowhere", batch_count=count)
        Cutter(spool, data.path, settings).cut()


def answered(
    onceway: Onceway, data: GatewayData, answer: str, *more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        onceway.command("spool", "discard", "--data", data.path, *more),
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def keys(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [row[:3] for row in rows]


def test_status_and_discard_say_how_much_waits(data: GatewayData, onceway: Onceway) -> None:
    data.add(20)
    data.add(5, device=None)
    with Spool(data.path, to_read=True) as spool:
        size = spool.volume(0).bytes
    shown = onceway("spool", "status", "--data", data.path)
    assert shown.returncode == 0
    assert f"25 messages ({size:,} bytes) wait" in shown.stdout
    found = json.loads(onceway("spool", "status", "--data", data.path, "--json").stdout)
    assert (found["gateway"], found["rows"], found["bytes"]) == ("site-1", 25, size)
    done = onceway("spool", "discard", "--data", data.path, "--yes")
    assert (done.returncode, data.spool_ids()) == (0, [])
    assert f"25 messages ({size:,} bytes) are discarded" in done.stdout
    assert check(data.path) == []
    for command in ("status", "discard"):
        empty = onceway("spool", command, "--data", data.path)
        assert empty.returncode == 0
        assert "the spool is empty" in empty.stdout
    again = onceway("spool", "discard", "--data", data.path, "--json")
    assert (again.returncode, json.loads(again.stdout)["rows"]) == (0, 0)


@pytest.mark.parametrize("answer", ["n\n", "", "\n", "nonsense\nn\n"])
def test_discard_asks_and_keeps_all_without_a_yes(
    data: GatewayData, onceway: Onceway, answer: str
) -> None:
    data.add(3)
    asked = answered(onceway, data, answer)
    assert asked.returncode == 1, asked
    assert "3 messages" in asked.stdout
    assert "gone for good" in asked.stdout
    assert len(data.spool_ids()) == 3


def test_discard_goes_on_after_a_yes(data: GatewayData, onceway: Onceway) -> None:
    data.add(3)
    asked = answered(onceway, data, "y\n", "--json")
    assert "3 messages" in asked.stderr
    assert (asked.returncode, json.loads(asked.stdout)["rows"], data.spool_ids()) == (0, 3, [])


def test_discard_is_refused_while_an_uplink_runs(data: GatewayData, onceway: Onceway) -> None:
    data.add(3)
    with closing(ProcessLock(data.path / "uplink.lock")):
        refused = onceway("spool", "discard", "--data", data.path, "--yes")
    assert refused.returncode == 4
    assert "already in use" in refused.stderr
    assert len(data.spool_ids()) == 3


def test_discard_without_a_store_is_an_error(tmp_path: Path, onceway: Onceway) -> None:
    for command in ("status", "discard"):
        refused = onceway("spool", command, "--data", tmp_path)
        assert refused.returncode == 10
        assert "there is no gateway database" in refused.stderr


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("device", ["sensor-1", None])
def test_rows_after_a_discard_land_under_fresh_ids_and_keys(
    data: GatewayData, drain, landed, tmp_path: Path, cut: bool, device: str | None
) -> None:
    landing = tmp_path / "landing"
    data.add(10, device)
    drain(data, landing)
    data.add(15, device)
    if cut:
        cut_one(data, 10)
    highest = max(data.spool_ids())
    old = data.meta("epoch")
    before = landed(landing)
    with Spool(data.path) as spool:
        assert waiting(spool).in_batch == (10 if cut else 0)
        discard(spool, data.path, waiting(spool).last)
    assert data.spool_ids() == []
    assert check(data.path) == []
    data.add(7, device)
    assert min(data.spool_ids()) > highest
    drain(data, landing)
    epoch = data.meta("epoch")
    assert (epoch != old) is cut
    rows = landed(landing) if not cut else [*before, *landed(landing, epoch=epoch)]
    assert len(rows) == 17
    assert len(set(keys(rows))) == 17
    if device is None:
        with_old_key = {row[1] for row in before}
        assert with_old_key.isdisjoint(row[1] for row in rows[10:])
    assert not list((data.path / "batches").glob("*.parquet"))


def status_of(onceway: Onceway, data: GatewayData) -> dict[str, Any]:
    """Return the part `spool` of the running gateway's status."""
    told = onceway("gateway", "status", "--data", data.path, "--json").stdout
    return dict(json.loads(told)["spool"])


class Cut(Exception):
    pass


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("steps", range(6))
def test_discard_that_is_interrupted_can_be_run_again_or_left(
    data: GatewayData, drain, landed, tmp_path: Path, cut: bool, steps: int, monkeypatch
) -> None:
    """The command is interrupted after `steps` transactions. If it is run again, it removes the
    remaining rows. If not, they land.
    """
    monkeypatch.setattr("gateway.uplink.discard._PIECE", 4)
    data.add(10, None)
    data.add(5)
    if cut:
        cut_one(data, 10)
    with Spool(data.path) as spool:
        left, transaction = [steps], spool._transaction

        def one_less():
            left[0] -= 1
            if left[0] < 0:
                raise Cut
            return transaction()

        monkeypatch.setattr(spool, "_transaction", one_less)
        with suppress(Cut):
            discard(spool, data.path, waiting(spool).last)
    assert check(data.path) == []
    rest = len(data.spool_ids())
    data.add(3, None)
    drain(data, tmp_path / "landing")
    rows = landed(tmp_path / "landing", epoch=data.meta("epoch"))
    assert len(rows) == len(set(keys(rows)))
    assert rest + 3 <= len(rows) <= 18


async def test_running_gateway_notices_a_discard(
    data: GatewayData, tmp_path: Path, onceway: Onceway
) -> None:
    data.add(2000)
    file = config(tmp_path, data, uplink=False)
    async with gateway(data.path, "--config", str(file)) as running:
        await running.logged("2,000 messages")
        shown = status_of(onceway, data)
        assert (shown["used"], shown["messages"]) == (False, 2000)
        text = onceway("gateway", "status", "--data", data.path)
        assert "spool: 2,000 messages" in text.stdout
        assert onceway("spool", "discard", "--data", data.path, "--yes").returncode == 0
        async with asyncio.timeout(30):
            while (await asyncio.to_thread(status_of, onceway, data))["messages"]:
                pass
        text = onceway("gateway", "status", "--data", data.path)
        assert "spool: " not in text.stdout
        assert await running.end() == 0
    with sqlite3.connect(data.path / "gateway.db") as database:
        (last,) = database.execute("SELECT id FROM spool_last").fetchone()
    assert last == 2000


def test_status_of_rows_without_a_time_names_no_time(data: GatewayData, onceway: Onceway) -> None:
    data.add(2)
    with data.db() as db:
        db.execute("UPDATE spool SET received = NULL")
    said = onceway("spool", "status", "--data", data.path).stdout
    assert "2 messages (" in said
    assert said.splitlines()[0].endswith("bytes) wait for an uplink")
    found = json.loads(onceway("spool", "status", "--data", data.path, "--json").stdout)
    assert found["oldest"] is None
