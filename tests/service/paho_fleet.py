"""Run many paho clients in a process. They publish from time to time, and ignore reason codes.

In: the gateway's port, the number of the first client, the number of clients, and for how many
seconds they publish. Out: after that time, a line of JSON (`Report`). A second line follows as soon
as all messages are published, or SETTLE_S after a line on standard input. paho uses select(), which
supports only file descriptors below 1024. So more than 200 clients need several processes.
"""

import json
import sys
import time
from typing import Any, TypedDict

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

TOPIC = "t"
EVERY_S = 5.0
AT_FIRST = 3
"""Number of messages that a client publishes at once when it starts. After that, it publishes one
message every EVERY_S seconds.
"""
SETTLE_S = 90.0


class Report(TypedDict):
    reconnections: int
    """Number of reconnections of all clients together."""
    said: list[str]
    """Payloads that were passed to paho."""
    published: list[str]
    """Payloads that paho reports as published. If the client was connected when it published,
    `is_published()` reports this. Otherwise `is_published()` always raises an error, and the call
    of `on_publish` counts.
    """


class Sensor:
    """A client. Its number determines QoS 1 or 2, and MQTT 5 or 3.1.1."""

    def __init__(self, number: int, port: int) -> None:
        self.name = f"s{number}"
        self.qos = qos_of(self.name)
        version = (paho.MQTTv5, paho.MQTTv311)[number // 2 % 2]
        self.connections = 0
        self.said: dict[str, paho.MQTTMessageInfo] = {}
        self._told = set[int]()
        more: dict[str, Any] = {} if version == paho.MQTTv5 else {"clean_session": False}
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=self.name, protocol=version, **more
        )
        self.client.on_connect = self._on_connect
        self.client.on_publish = self._on_publish
        if version == paho.MQTTv5:
            session = Properties(PacketTypes.CONNECT)
            session.SessionExpiryInterval = 1000
            self.client.connect_async("127.0.0.1", port, clean_start=False, properties=session)
        else:
            self.client.connect_async("127.0.0.1", port)
        self.client.loop_start()

    def _on_connect(self, *_: Any) -> None:
        self.connections += 1

    def _on_publish(self, _client: paho.Client, _data: Any, mid: int, *_: Any) -> None:
        self._told.add(mid)

    def is_published(self, payload: str) -> bool:
        info = self.said[payload]
        return info.mid in self._told or (info.rc == paho.MQTT_ERR_SUCCESS and info.is_published())

    def publish(self) -> None:
        payload = f"{self.name}:{len(self.said)}"
        self.said[payload] = self.client.publish(TOPIC, payload, self.qos)


def qos_of(name: str) -> int:
    """Return the QoS at which the client with this name publishes."""
    return 1 + int(name[1:]) % 2


def report(sensors: list[Sensor]) -> Report:
    said = [(sensor, payload) for sensor in sensors for payload in sensor.said]
    return {
        "reconnections": sum(max(0, sensor.connections - 1) for sensor in sensors),
        "said": [payload for _, payload in said],
        "published": [payload for sensor, payload in said if sensor.is_published(payload)],
    }


def tell(found: Report) -> None:
    print(json.dumps(found), flush=True)


def main(port: int, first: int, count: int, seconds: float) -> None:
    sensors = [Sensor(number, port) for number in range(first, first + count)]
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        for sensor in sensors:
            if len(sensor.said) < AT_FIRST + passed // EVERY_S:
                sensor.publish()
        time.sleep(0.1)
    tell(report(sensors))
    sys.stdin.readline()
    until = time.monotonic() + SETTLE_S
    while len((found := report(sensors))["published"]) < len(found["said"]):
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    tell(found)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), float(sys.argv[4]))
