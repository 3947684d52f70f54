"""The spool of a store that says too little of itself is refused with a remedy."""

import sqlite3
from contextlib import closing

import pytest

from gateway.store.schema import FILE, StoreError
from gateway.uplink.spool import Spool
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
