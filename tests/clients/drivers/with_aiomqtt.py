"""A driver with aiomqtt. It uses one client for all connections, and publishes each message again
until `publish` returns.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Any

import aiomqtt
from aiomqtt import ProtocolVersion
from options import options, say
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

WINDOW = 10
of = options()


def new() -> aiomqtt.Client:
    more: dict[str, Any] = {"clean_session": False, "protocol": ProtocolVersion.V311}
    if of.version == 5:
        session = Properties(PacketTypes.CONNECT)
        session.SessionExpiryInterval = 3600
        more = {"clean_start": False, "properties": session, "protocol": ProtocolVersion.V5}
    return aiomqtt.Client(
        "127.0.0.1",
        of.port,
        identifier=of.id,
        transport="websockets" if of.web else "tcp",
        websocket_path="/mqtt" if of.web else None,
        tls_context=ssl.create_default_context(cafile=of.ca) if of.tls else None,
        max_concurrent_outgoing_calls=WINDOW,
        **more,
    )


async def subscribe(client: aiomqtt.Client) -> None:
    await client.subscribe(of.topic, of.qos)
    say("ready")
    async for message in client.messages:
        assert isinstance(message.payload, bytes)
        say(message.payload.decode())


async def publish(client: aiomqtt.Client, left: list[int]) -> None:
    """Publish the remaining messages. left: numbers of messages for which `publish` has not
    returned.
    """

    async def some() -> None:
        while left:
            number = left.pop(0)
            try:
                await client.publish(of.topic, str(number), of.qos, timeout=5)
            except BaseException:
                left.insert(0, number)
                raise

    async with asyncio.TaskGroup() as group:
        for _ in range(min(WINDOW, len(left))):
            group.create_task(some())


async def main() -> None:
    client, left = new(), list(range(of.count))
    failure: BaseException | None = None
    for _ in range(100):
        try:
            async with client:
                await (subscribe(client) if of.does == "subscribe" else publish(client, left))
                say("published")
                return
        except* aiomqtt.MqttError as errors:
            failure = errors.exceptions[0]
        if of.count == 1 and of.does == "publish":  # like a program that does not try again
            break
        await asyncio.sleep(0.2)
    say(f"not published: {type(failure).__name__}")


with suppress(KeyboardInterrupt):
    asyncio.run(main())
