"""A foreign client in a bench: aiomqtt, which reports to the rig. In: the environment that the rig
sets (README, Your own program). Out: the line protocol. aiomqtt treats every answer as a success.
The gateway therefore ends the connection if it refuses a message, and this program publishes the
message again in a new session.
"""

import asyncio
import json
import os
import time

import aiomqtt
from aiomqtt.client import ProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PORT, NAME = int(os.environ["ONCEWAY_PORT"]), os.environ["ONCEWAY_NAME"]
TOPIC, QOS = os.environ["ONCEWAY_TOPIC"], int(os.environ["ONCEWAY_QOS"])
MESSAGES, PER_S = int(os.environ["ONCEWAY_MESSAGES"]), float(os.environ["ONCEWAY_PER_S"])


def tell(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, "t": time.monotonic_ns(), **fields}), flush=True)


def identity(sequence: int) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    incarnation = os.environ["ONCEWAY_INCARNATION"]
    properties.UserProperty = [("incarnation", incarnation), ("seq", str(sequence))]
    return properties


async def main() -> None:
    sequence, announced = 1, 0
    while sequence <= MESSAGES:
        try:
            async with aiomqtt.Client(
                "127.0.0.1", PORT, identifier=NAME, protocol=ProtocolVersion.V5
            ) as client:
                while sequence <= MESSAGES:
                    payload = f"{NAME} {sequence}".encode()
                    if announced < sequence:
                        tell("publication", sequence=sequence, topic=TOPIC, payload=payload.hex())
                        announced = sequence
                    else:
                        tell("again", sequence=sequence)
                    await client.publish(TOPIC, payload, QOS, properties=identity(sequence))
                    if QOS:
                        tell("acknowledged", sequence=sequence)
                    sequence += 1
                    await asyncio.sleep(1 / PER_S)
        except aiomqtt.MqttError:
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(main())
