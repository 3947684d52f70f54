"""If the write-ahead log is missing after a kill, the gateway reports that."""

import os
import signal
from pathlib import Path

from gateway.commands import control_client as control
from gateway.mqtt.packets import Connect, Puback, Publish
from gateway.store.run_marks import SKIPPED
from gateway.store.schema import FILE
from tests.service.process import gateway
from tests.service.test_restored import spooled
from tests.service.wire import wire


async def publish(port: int, payload: bytes) -> None:
    async with wire(port, Connect("c", clean_start=True)) as client:
        client.send(Publish("t", payload, 1, 1))
        await client.take(Puback)


async def test_start_without_the_log_of_a_killed_run_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with gateway(folder) as running:
        await publish(running.port, b"lost")
        await running.end(signal.SIGKILL)
    os.truncate(folder / f"{FILE}-wal", 0)
    async with gateway(folder) as running:
        await running.logged("its write-ahead log is gone")
        assert "acknowledged may be lost" in control.ask(folder, do="status")[0]["restored"]
        await publish(running.port, b"kept")
        await running.end()
    assert spooled(folder) == [b"kept"]
    assert SKIPPED == 1_000_000, "stated in gateway/store/README.md"


async def test_starts_after_kills_and_stops_say_nothing_of_a_log(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        async with gateway(folder) as running:
            assert control.ask(folder, do="status")[0]["restored"] is None
            await publish(running.port, b"kept")
            await running.end(number)
            assert not any("log is gone" in line for line in running.log)
    assert spooled(folder) == [b"kept"] * 4
