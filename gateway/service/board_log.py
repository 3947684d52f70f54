"""What a board has logged, for people who look for what is wrong with it.

In: a board's name. Out: its lines, as it has them in RAM, the oldest first; firmware/src/ow_log.h
says how they come. The board is asked by the command `log`, and answers on `logs/NAME`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gateway.config import INSIDE
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connack, Packet, Publish, Suback, Subscribe, Subscription
from gateway.service.inside import Client
from gateway.service.page_commands import send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.service.engine import Engine

PATIENCE_S = 10.0
"""Without a line."""
MOST_LINES = 10_000
"""No board has room for more."""

_LINE = re.compile(r"(\+?)(\d{1,10}) (.*)", re.DOTALL)
_END = re.compile(r"\d{1,5}")
_FAILURE = 0x80


async def read(engine: Engine, device: str) -> AsyncIterator[dict[str, Any]]:
    """Rows `{"utc": seconds or None, "uptime": seconds since its start or None, "text": …}`, and at
    last `{"lost": lines that the board has no room for any more}`. OncewayError when it does not
    answer.
    """
    session = engine.broker.sessions.get(device)
    if session is None or session.connection is None:
        raise OncewayError("the board is not connected", device, "See: onceway session list")
    with _listening(engine, device) as heard:
        await _next(heard, device)
        if problem := await send(engine, device, "log"):
            raise OncewayError(problem.rstrip("."), device)
        for _ in range(MOST_LINES):
            text = await _next(heard, device)
            if line := _LINE.fullmatch(text):
                since_start, seconds, said = line.groups()
                yield {
                    "utc": None if since_start else int(seconds),
                    "uptime": int(seconds) if since_start else None,
                    "text": said,
                }
            elif _END.fullmatch(text):
                yield {"lost": int(text)}
                return


@contextmanager
def _listening(engine: Engine, device: str) -> Iterator[asyncio.Queue[str]]:
    """What comes on the board's topic, after an empty text when it is listened to."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    def came(packet: Packet | None) -> None:
        match packet:
            case Connack():
                client.send(Subscribe(1, [Subscription(f"logs/{device}", 0, retain_handling=2)]))
            case Suback(reasons=[reason]) if reason < _FAILURE:
                heard.put_nowait("")
            case Publish() if heard.qsize() < MOST_LINES:
                heard.put_nowait(packet.payload.decode(errors="replace"))

    client = Client(engine, "log", INSIDE, came)
    try:
        yield heard
    finally:
        client.leave()


async def _next(heard: asyncio.Queue[str], device: str) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await heard.get()
    except TimeoutError:
        raise OncewayError(
            f"the board has not answered within {PATIENCE_S:g} s",
            device,
            "Is its firmware built with OW_LOG_SIZE? Do the access rules let it write to"
            f" logs/{device}? One on a radio answers when it speaks next",
        ) from None
