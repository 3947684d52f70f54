"""What a board says on `logs/NAME`, for those who have asked it something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.config import INSIDE
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connack, Packet, Publish, Suback, Subscribe, Subscription
from gateway.runtime.internal_client import Client

if TYPE_CHECKING:
    from gateway.runtime.engine import Engine

PATIENCE_S = 10
"""Without a word, of a board on a line."""
RADIO_PATIENCE_S = 3600
"""Until a board by radio has what it is asked: longer than from one reading to the next."""
ANSWER_S = 600
"""At most from the question to the answer, and from one line to the next: such a board has to keep
silent after each of its frames, for minutes where the law is strict and the frames are long.
"""
ALIVE_S = 5.0
"""So often a row without anything says that the waiting goes on."""
MOST = 10_000
"""Messages that wait."""
_FAILURE = 0x80


@asynccontextmanager
async def listen(
    engine: Engine, device: str, name: str
) -> AsyncIterator[asyncio.Queue[Publish | None]]:
    """Subscribe to the board's topic. name: of the client. Raises OncewayError if it may not."""
    heard: asyncio.Queue[Publish | None] = asyncio.Queue()

    def came(packet: Packet | None) -> None:
        match packet:
            case Connack():
                client.send(Subscribe(1, [Subscription(f"logs/{device}", 0, retain_handling=2)]))
            case Suback(reasons=[reason]) if reason < _FAILURE:
                heard.put_nowait(None)
            case Publish() if heard.qsize() < MOST:
                heard.put_nowait(packet)

    client = Client(engine, name, INSIDE, came)
    try:
        try:
            await asyncio.wait_for(heard.get(), PATIENCE_S)
        except TimeoutError:
            raise OncewayError(f"the gateway may not read logs/{device}", device) from None
        yield heard
    finally:
        client.leave()


async def message(heard: asyncio.Queue[Publish | None], within: float) -> Publish | None:
    """Return the next message, or None if none has come within so many seconds."""
    try:
        return await asyncio.wait_for(heard.get(), within)
    except TimeoutError:
        return None
