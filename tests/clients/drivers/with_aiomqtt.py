"""`with_aiomqtt.py PORT QOS`: publish one message with aiomqtt; print what aiomqtt reports."""

import asyncio
import sys

import aiomqtt


async def main() -> None:
    protocol = aiomqtt.ProtocolVersion.V5
    port = int(sys.argv[1])
    async with aiomqtt.Client("127.0.0.1", port, identifier="probe", protocol=protocol) as client:
        await client.publish("t", b"x", int(sys.argv[2]), timeout=5)
        print("published", flush=True)


try:
    asyncio.run(main())
except aiomqtt.MqttError as error:
    print(f"not published: {type(error).__name__}")
