"""The spool of a store that says too little of itself is refused with a remedy."""

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.config import UplinkSection
from gateway.store import twins
from gateway.store.schema import FILE, START_GATEWAY, StoreError
from gateway.uplink import spool as module
from gateway.uplink.cutter import Cutter
from gateway.uplink.manifest import Origin
from gateway.uplink.numbers import Numbers
from gateway.uplink.spool import NoSpool, Spool
from tests.uplink.conftest import GatewayData


@pytest.mark.parametrize("lacks", ["epoch", "gateway"])
def test_store_that_names_no_gateway_lands_nothing(data: GatewayData, lacks: str) -> None:
    with closing(sqlite3.connect(data.path / FILE)) as database:
        keys = ("epoch",) if lacks == "epoch" else ("gateway", "name")
        for key in keys:
            database.execute("DELETE FROM meta WHERE key = ?", (key,))
            database.execute("DELETE FROM twin WHERE kind = 'meta' AND key LIKE ?", (f"%{key}%",))
        database.commit()
    with Spool(data.path) as spool, pytest.raises(StoreError, match="which gateway") as refused:
        spool.origin()
    assert refused.value.hint


def test_store_of_an_older_version_has_no_copies_to_compare(data: GatewayData) -> None:
    with data.db() as database:
        twins.drop(database)
    with Spool(data.path) as spool:
        assert spool.origin() == Origin("site-1", "00c0ffee")


def test_disk_that_fails_is_not_taken_for_an_older_version() -> None:
    class Broken:
        def execute(self, query: str, _: object) -> SimpleNamespace:
            if "twin" in query:
                raise sqlite3.OperationalError("disk I/O error")
            return SimpleNamespace(fetchone=lambda: (b"site-1",))

    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        Numbers(Broken()).get("gateway")  # type: ignore[arg-type]


def test_batch_that_cannot_be_recorded_leaves_the_spool_as_it_was(data: GatewayData) -> None:
    data.add(5)
    with Spool(data.path) as spool:
        cut = Cutter(spool, data.path, UplinkSection(landing="/x", batch_count=3)).cut()
        before = spool.volume(0).rows, data.batches()
        with pytest.raises(sqlite3.IntegrityError):
            spool.record(cut, 7, b"", 2)
        assert (spool.volume(0).rows, data.batches()) == before
        spool.landed(cut)
        assert spool.waiting(9)[0] == 2, "the next transaction succeeds"


def test_account_that_may_not_create_the_log_waits_for_the_gateway(
    data: GatewayData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    for end in ("-wal", "-shm"):
        (data.path / f"{FILE}{end}").unlink(missing_ok=True)
    monkeypatch.setattr(module, "connect", fails)
    with pytest.raises(StoreError, match="cannot be used: an error without a known cause"):
        Spool(data.path)
    monkeypatch.setattr(module, "may_use", lambda data: False)
    with pytest.raises(NoSpool, match="has no write-ahead log, and this account") as refused:
        Spool(data.path)
    assert refused.value.hint == START_GATEWAY


@pytest.mark.parametrize("empty", [True, False])
def test_database_that_is_gone_is_not_begun_again(data: GatewayData, empty: bool) -> None:
    """A restore or a repair is under way. A database that root's uplink begins would belong to
    root.
    """
    with Spool(data.path):
        for path in data.path.glob(f"{FILE}*"):
            path.unlink()
        if empty:
            (data.path / FILE).touch()
    assert (data.path / FILE).exists() == empty
    assert not empty or (data.path / FILE).stat().st_size == 0
