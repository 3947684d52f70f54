"""The script that writes files: `python -m hil.glue.collect`. In: QoS 2 messages of a persistent
session. Out: files of JSON lines in a folder. A complete file gets its name by a rename, as Spark's
file source needs it.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Annotated

import aiomqtt
import typer

COUNT, AGE_S = 20, 2.0  # a file ends after so many rows or seconds


def main(folder: Annotated[Path, typer.Option()], broker: Annotated[int, typer.Option()]) -> None:
    asyncio.run(_main(folder, broker))


async def _main(folder: Path, broker: int) -> None:
    rows: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_receive(broker, rows))
        tasks.create_task(_write(folder, rows))


async def _receive(broker: int, rows: list[str]) -> None:
    client = aiomqtt.Client("127.0.0.1", broker, identifier="collect", clean_session=False)
    while True:
        try:
            async with client:
                await client.subscribe("sensors/#", qos=2)
                async for message in client.messages:
                    device = message.topic.value.removeprefix("sensors/")
                    line = message.payload.decode(errors="replace")
                    rows.append(json.dumps({"device": device, "line": line}))
        except aiomqtt.MqttError:
            await asyncio.sleep(1)


async def _write(folder: Path, rows: list[str]) -> None:
    begun = time.monotonic()
    while True:
        await asyncio.sleep(0.1)
        if len(rows) >= COUNT or (rows and time.monotonic() - begun > AGE_S):
            batch, rows[:] = rows[:], []
            part = folder / f"part-{time.time_ns()}.tmp"
            part.write_text("\n".join(batch) + "\n")
            part.rename(part.with_suffix(".jsonl"))
            begun = time.monotonic()


if __name__ == "__main__":
    typer.run(main)
