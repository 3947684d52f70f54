"""A subscription of the gateway to a board's answers on `logs/NAME`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.config import INSIDE
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connack, Packet, Publish, Suback, Subscribe, Subscription
from gateway.runtime.engine import Engine
from gateway.runtime.internal_client import Client

PATIENCE_S = 10
"""Longest time that a board on a serial line takes to answer, in seconds."""
RADIO_PATIENCE_S = 3600
"""Longest time until a radio board gets a command, in seconds. The board gets a command when it
next sends, so this time must be longer than the board's interval.
"""
ANSWER_S = 600
"""Longest time, in seconds, from the receipt of a command by the board to its answer, and from one
line of the answer to the next. A radio board must stay silent after each of its frames, for minutes
if the law is strict and the frames are long.
"""
ALIVE_S = 5.0
"""Seconds between two empty rows, which show that the gateway is still waiting."""
MOST = 10_000
"""Largest number of messages that wait to be read. Further messages are dropped."""
_FAILURE = 0x80


@asynccontextmanager
async def listen(
    engine: Engine, device: str, name: str
) -> AsyncIterator[asyncio.Queue[Publish | None]]:
    """Subscribe to `logs/NAME` of a board, and yield the queue of its messages. name: name of the
    internal client that subscribes. Raises OncewayError if the subscription is not granted within
    PATIENCE_S.
    """
    heard: asyncio.Queue[Publish | None] = asyncio.Queue()

    def on_packet(packet: Packet | None) -> None:
        match packet:
            case Connack():
                client.send(Subscribe(1, [Subscription(f"logs/{device}", 0, retain_handling=2)]))
            case Suback(reasons=[reason]) if reason < _FAILURE:
                heard.put_nowait(None)
            case Publish() if heard.qsize() < MOST:
                heard.put_nowait(packet)

    client = Client(engine, name, INSIDE, on_packet)
    try:
        try:
            await asyncio.wait_for(heard.get(), PATIENCE_S)
        except TimeoutError:
            raise OncewayError(f"the gateway may not read logs/{device}", device) from None
        yield heard
    finally:
        client.leave()


async def message(heard: asyncio.Queue[Publish | None], within: float) -> Publish | None:
    """Return the next message, or None if none arrives in time. within: longest wait in seconds."""
    try:
        return await asyncio.wait_for(heard.get(), within)
    except TimeoutError:
        return None
