"""The script that writes files: `python -m hil.glue.collect`. In: QoS 2 messages of a persistent
session. Out: files of JSON lines in a folder. A complete file is renamed to its name, as Spark's
file source needs it.
"""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import paho.mqtt.client as mqtt
import typer
from paho.mqtt.enums import CallbackAPIVersion

COUNT, AGE_S = 20, 2.0  # rows and seconds of a file


def main(folder: Annotated[Path, typer.Option()], broker: Annotated[int, typer.Option()]) -> None:
    rows: list[str] = []
    begun = time.monotonic()

    def on_connect(client: mqtt.Client, *_: Any) -> None:
        client.subscribe("sensors/#", qos=2)

    def on_message(_client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        rows.append(
            json.dumps(
                {
                    "device": message.topic.removeprefix("sensors/"),
                    "line": message.payload.decode(errors="replace"),
                }
            )
        )

    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="collect", clean_session=False)
    client.on_connect, client.on_message = on_connect, on_message
    client.reconnect_delay_set(1, 2)
    client.connect_async("127.0.0.1", broker)
    client.loop_start()
    while True:
        time.sleep(0.1)
        if len(rows) >= COUNT or (rows and time.monotonic() - begun > AGE_S):
            batch, rows[:] = rows[:], []
            part = folder / f"part-{time.time_ns()}.tmp"
            part.write_text("\n".join(batch) + "\n")
            part.rename(part.with_suffix(".jsonl"))
            begun = time.monotonic()


if __name__ == "__main__":
    typer.run(main)
