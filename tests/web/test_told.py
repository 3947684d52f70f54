"""People are told of an uplink that does not run, and of each bridge, as the page shows them."""

from dataclasses import replace
from pathlib import Path

from gateway.bridge.status import BridgeStatus
from gateway.config import parse
from gateway.store.schema import FILE
from gateway.system.lock import ProcessLock
from gateway.web.told import READ_S, Told
from tests.uplink.conftest import GatewayData
from tests.web.test_web import a_source

UPLINK = {"uplink": {"landing": "file:///landing"}}


async def test_stopped_uplink_is_notified_until_it_runs(tmp_path: Path) -> None:
    GatewayData(tmp_path)
    source = a_source(tmp_path, parse(UPLINK, "here"))
    told = Told(source)
    assert await told.problems() == ["the uplink does not run: no batch lands"]
    lock = ProcessLock(tmp_path / "uplink.lock")
    source.broker.now += READ_S
    assert await told.problems() == []
    lock.close()
    (tmp_path / FILE).rename(tmp_path / "away")  # what cannot be read changes nothing
    source.broker.now += READ_S
    assert await told.problems() == []


async def test_bridge_without_its_broker_is_notified_and_the_clock_is_not(tmp_path: Path) -> None:
    state = BridgeStatus("cloud", "mqtts://far", "refused", 0, 0, 1, 0, 0, 0)
    source = replace(a_source(tmp_path), bridges=lambda: [state])
    assert await Told(source).problems() == ["bridge cloud: refused; 0 messages wait"]
