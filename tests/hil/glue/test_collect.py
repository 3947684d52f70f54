"""The script of the glue system that writes files, run as a process behind mosquitto."""

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import aiomqtt

from tests.bridge.mosquitto import mosquitto


async def publish(port: int, lines: Iterable[str], retain: bool = False) -> None:
    async with aiomqtt.Client("127.0.0.1", port) as client:
        for line in lines:
            await client.publish("sensors/uno", line, 2, retain)


async def test_messages_before_and_after_a_restart_of_the_broker_are_in_files(
    tmp_path: Path,
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    wanted = {"subscribed"}

    def there() -> set[str]:
        rows = (json.loads(row) for one in files.glob("*.jsonl") for row in one.open())
        return {row["line"] for row in rows if row["device"] == "uno"}

    async def arrived() -> None:
        async with asyncio.timeout(60):
            while there() != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async with mosquitto(tmp_path / "broker") as broker:
        await publish(broker.port, wanted, retain=True)
        argv = ["-m", "hil.glue.collect", "--folder", str(files), "--broker", str(broker.port)]
        script = await asyncio.create_subprocess_exec(sys.executable, *argv)
        try:
            await arrived()
            await broker.end()
            await broker.start()
            await publish(broker.port, map(str, range(25)))
            wanted |= {*map(str, range(25))}
            await arrived()
        finally:
            script.terminate()
            await script.wait()
