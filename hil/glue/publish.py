"""The script at the port: `python -m hil.glue.publish`. In: lines. Out: a QoS 2 message for each
line that is JSON.

The script uses paho, because paho sends unacknowledged messages again after a reconnect. aiomqtt's
`publish` raises an error instead, and the script would have to repeat the message in another flow.
"""

import json
import time
from typing import Annotated

import paho.mqtt.client as mqtt
import serial
import typer
from paho.mqtt.enums import CallbackAPIVersion


def main(
    port: Annotated[str, typer.Option()],
    name: Annotated[str, typer.Option()],
    broker: Annotated[int, typer.Option()],
) -> None:
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2, client_id=f"publish-{name}", clean_session=False
    )
    client.reconnect_delay_set(1, 2)
    client.connect_async("127.0.0.1", broker)
    client.loop_start()
    while True:
        try:
            with serial.Serial(port, 115200, timeout=1) as lines:
                while True:
                    line = lines.readline().strip()
                    try:
                        json.loads(line)
                    except ValueError:
                        continue
                    client.publish(f"sensors/{name}", line, qos=2)
        except (serial.SerialException, OSError):
            time.sleep(1)


if __name__ == "__main__":
    typer.run(main)
