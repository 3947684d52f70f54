"""A driver with a bridge of mosquitto. It runs a mosquitto, and uses paho to publish and to receive
messages there.
"""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

import aiomqtt
from options import options, say

from tests.bridge.mosquitto import mosquitto

of = options()
BRIDGE = """allow_anonymous true
log_type none
connection {id}
address 127.0.0.1:{port}
topic {topic} {way} 2
cleansession false
notifications false
bridge_protocol_version {version}
remote_clientid {id}
restart_timeout 1
{ca}"""


async def main() -> None:
    way = "in" if of.does == "subscribe" else "out"
    ca = f"bridge_cafile {of.ca}" if of.tls else ""
    version = "mqttv50" if of.version == 5 else "mqttv311"
    more = BRIDGE.format(topic=of.topic, id=of.id, port=of.port, way=way, version=version, ca=ca)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(of.folder or name)
        async with mosquitto(folder, more) as own, aiomqtt.Client("127.0.0.1", own.port) as client:
            if of.does == "subscribe":
                await client.subscribe(of.topic, 2)
                await asyncio.sleep(1)  # until the bridge has subscribed
                say("ready")
                async for message in client.messages:
                    assert isinstance(message.payload, bytes)
                    say(message.payload.decode())
            for number in range(of.count):
                await client.publish(of.topic, str(number), of.qos)
            say("published")
            await asyncio.sleep(of.within_s)


with suppress(KeyboardInterrupt, asyncio.CancelledError):
    asyncio.run(main())
