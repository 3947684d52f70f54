"""Commands to the boards, as a person or a program sends them: MQTT over TCP, QoS 2, through the
gateway under test. In: a board's name and a text. Out: a message on `commands/NAME` that arrives
once.

The commander uses paho, because paho sends unacknowledged commands again after a reconnect.
aiomqtt's `publish` raises an error instead, and a command published once more could arrive twice.
"""

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from hil.programs.process import free_port


class Commander:
    """The client that commands boards. It repeats unacknowledged commands after a reconnect."""

    def __init__(self) -> None:
        self.port = free_port()
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id="commander", clean_session=False
        )
        self._client.reconnect_delay_set(1, 2)

    def start(self) -> None:
        self._client.connect_async("127.0.0.1", self.port)
        self._client.loop_start()

    def send(self, device: str, text: str) -> None:
        self._client.publish(f"commands/{device}", text, qos=2)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
