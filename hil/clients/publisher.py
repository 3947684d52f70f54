"""`python -m hil.clients.publisher`: a program that publishes over MQTT 5, one message after the
other, with paho. SIGTERM ends it. The program needs paho: `on_publish` has the reason code, which
aiomqtt discards, and `on_log` reports each PUBLISH that paho sends again.

In: broker, number of messages, size, QoS and rate. Out: JSON Lines on standard output:

- `publication` before a message goes to paho;
- `acknowledged` when the gateway has it (not at QoS 0);
- `resent` when it is sent once more with DUP;
- `again` when it is sent in another flow, because the gateway refused it, or answered its PUBREL
  with 0x92 (identifier not found). After a lost PUBCOMP, 0x92 means that the gateway has the
  message; after a refusal, that the gateway does not have it.

If a connection attempt of paho (2.2.0) fails before one succeeds, paho publishes messages again
that were already answered by PUBREC, instead of sending PUBREL: the second reset of the messages in
flight cancels the first. The log of paho shows the resets.

Each message names its identity (user properties `incarnation` and `seq`). Only one message is in
flight at a time, so the order stays even if one is refused. The session outlives the connection:
paho sends unacknowledged messages again after a reconnect.
"""

import queue
import random
import threading
import time
from typing import Annotated, Any

import paho.mqtt.client as mqtt
import typer
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from hil.clients.options import (
    Messages,
    Name,
    PayloadBytes,
    PayloadForm,
    PerS,
    Port,
    Seed,
)
from hil.clients.payloads import payload_of
from hil.clients.telling import (
    INCARNATION,
    READS_REASON_CODES,
    SESSION_EXPIRY,
    tell,
    topic_of,
)

REFUSED_WAIT = 1.0  # s until a refused message is published again

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    port: Port,
    name: Name,
    messages: Messages,
    payload: PayloadForm,
    payload_bytes: PayloadBytes,
    qos: Annotated[int, typer.Option(min=0, max=2)],
    per_s: PerS,
    seed: Seed,
) -> None:
    """Publish numbered messages with paho. At QoS 1 and 2, at most one message is in flight."""
    answers: queue.Queue[ReasonCode] = queue.Queue()
    under_way = InFlight()
    client = _connected(port, name, answers, under_way)
    rng = random.Random(seed)
    start = time.monotonic()
    for sequence in range(1, messages + 1):
        time.sleep(max(0.0, start + sequence / per_s - time.monotonic()))
        content = payload_of(payload, name, sequence, payload_bytes, rng)
        tell("publication", sequence=sequence, topic=topic_of(name), payload=content.hex())
        under_way.begin(sequence)
        client.publish(topic_of(name), content, qos, properties=_identity(sequence))
        if qos == 0:
            continue
        # paho reports the reason code of PUBACK or PUBCOMP, and answers any PUBREC with PUBREL
        while answers.get().is_failure:
            tell("again", sequence=sequence)
            time.sleep(REFUSED_WAIT)
            under_way.begin(sequence)
            client.publish(topic_of(name), content, qos, properties=_identity(sequence))
        tell("acknowledged", sequence=sequence)
    client.disconnect()
    client.loop_stop()


class InFlight:
    """Reports repeated PUBLISH packets in paho's log: `again` after a PUBREC, else `resent`."""

    def begin(self, sequence: int) -> None:
        self._sequence, self._received = sequence, False

    def follow(self, _client: mqtt.Client, _data: Any, _level: int, text: str) -> None:
        if text.startswith("Received PUBREC"):
            self._received = True
        elif text.startswith("Sending PUBLISH") and self._received:
            tell("again", sequence=self._sequence)
            self._received = False
        elif text.startswith("Sending PUBLISH (d1"):
            tell("resent", sequence=self._sequence)


def _connected(
    port: int, name: str, answers: queue.Queue[ReasonCode], under_way: InFlight
) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
    client.reconnect_delay_set(1, 2)
    connected = threading.Event()

    def on_connect(*_: Any) -> None:
        connected.set()

    def on_publish(
        _client: mqtt.Client, _data: Any, _id: int, reason: ReasonCode, _properties: Properties
    ) -> None:
        answers.put(reason)

    client.on_connect = on_connect
    client.on_publish = on_publish
    client.on_log = under_way.follow
    session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    session.SessionExpiryInterval = SESSION_EXPIRY
    session.UserProperty = READS_REASON_CODES
    client.connect_async(
        "127.0.0.1", port, clean_start=mqtt.MQTT_CLEAN_START_FIRST_ONLY, properties=session
    )
    client.loop_start()
    connected.wait()
    return client


def _identity(sequence: int) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = [("incarnation", str(INCARNATION)), ("seq", str(sequence))]
    return properties


if __name__ == "__main__":
    app()
