"""A driver with paho's `loop_start`, which reconnects by itself."""

import sys
import threading
import time
from typing import Any

import paho.mqtt.client as mqtt
from options import options, say
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

of = options()
V5 = of.version == 5
client = mqtt.Client(
    CallbackAPIVersion.VERSION2,
    client_id=of.id,
    protocol=mqtt.MQTTv5 if V5 else mqtt.MQTTv311,
    clean_session=None if V5 else False,
    transport="websockets" if of.web else "tcp",
)
client.reconnect_delay_set(1, 1)
if of.web:
    client.ws_set_options("/mqtt")
if of.tls:
    client.tls_set(of.ca)


def on_connect(_client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _more: Any) -> None:
    if reason.is_failure:
        say(f"not connected: {reason}")
    elif of.does == "subscribe":
        client.subscribe(of.topic, of.qos)
    connected.set()


def on_publish(*_: Any) -> None:
    global published
    published += 1


published = 0
connected = threading.Event()

client.on_connect = on_connect
client.on_publish = on_publish
client.on_subscribe = lambda *_: say("ready")
client.on_message = lambda _client, _data, message: say(message.payload.decode())
more: dict[str, Any] = {}
if V5:
    session = Properties(PacketTypes.CONNECT)
    session.SessionExpiryInterval = 3600
    more = {"clean_start": False, "properties": session}
client.connect_async("127.0.0.1", of.port, **more)
client.loop_start()
if of.does == "subscribe":
    threading.Event().wait()
connected.wait(of.within_s)
for number in range(
    of.count
):  # without a connection, paho queues the message, although `rc` says "no connection"
    client.publish(of.topic, str(number), of.qos)
end = time.monotonic() + of.within_s
while published < of.count and time.monotonic() < end:
    time.sleep(0.02)
say("published" if published >= of.count else "not published")
client.disconnect()
client.loop_stop()
sys.exit()
