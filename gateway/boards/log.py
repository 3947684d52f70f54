"""What a board has logged, for people who look for what is wrong with it.

In: a board's name. Out: its lines, as it has them in RAM, the oldest first; firmware/src/ow_log.h
says how they come. The board is asked by the command `log`, and answers on `logs/NAME`. One on a
radio gets the command when it speaks next, which may take long.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gateway.boards.commands import send
from gateway.boards.reports import UNKNOWN_COMMAND
from gateway.config import INSIDE
from gateway.errors import OncewayError
from gateway.mqtt.packets import Connack, Packet, Publish, Suback, Subscribe, Subscription
from gateway.runtime.internal_client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.runtime.engine import Engine

PATIENCE_S = 10
"""Without a line, of a board on a line."""
RADIO_PATIENCE_S = 3600
"""Until a board by radio has the command: longer than from one reading to the next."""
ANSWER_S = 600
"""At most from the command, and from one line to the next: such a board has to keep silent after
each of its frames, for minutes where the law is strict and the frames are long.
"""
ALIVE_S = 5.0
"""So often a row without anything says that the waiting goes on."""
MOST_LINES = 10_000
"""No board has room for more."""
LONGEST = 256
"""Bytes of a line that are looked at: a board's have 40 characters behind the time."""
WHOLE_S = 60
"""For the whole log of a board on a line."""

_BUILD = "Its firmware has to be built with OW_LOG_SIZE, as the sensor on a line is"
_LINE = re.compile(r"(\+?)(\d{1,10}) (.*)", re.DOTALL)
_END = re.compile(r"\d{1,5}")
_FAILURE = 0x80


async def read(engine: Engine, device: str, wait_s: int) -> AsyncIterator[dict[str, Any]]:
    """Rows `{"utc": seconds or None, "uptime": seconds since its start or None, "text": …}`, and at
    last `{"lost": lines that the board has no room for any more}`; meanwhile empty ones.
    OncewayError when it has not answered for so long.
    """
    session = engine.broker.sessions.get(device)
    if session is None or session.connection is None:
        raise OncewayError("the board is not connected", device, "See: onceway session list")
    with _listening(engine, device) as heard:
        if await _next(heard, PATIENCE_S) is None:
            raise OncewayError(f"the gateway may not read logs/{device}", device)
        if problem := await send(engine, device, "log"):
            raise OncewayError(problem.rstrip("."), device)
        clock, flow, lines = asyncio.get_running_loop().time, session.send_flow, 0
        began, limit, taken = clock(), wait_s, False
        while lines < MOST_LINES:
            if not taken and not flow.messages:
                began, limit, taken = clock(), min(limit, ANSWER_S), True
            left = began + limit - clock()
            text = await _next(heard, min(left, ALIVE_S))
            if text is None:
                if left <= ALIVE_S:
                    raise _silent(device, limit, taken)
                yield {}
                continue
            began, lines = clock(), lines + 1
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
            elif text == UNKNOWN_COMMAND + "log":
                raise OncewayError("the board keeps no log", device, _BUILD)


async def whole(engine: Engine, user: str, device: str) -> list[dict[str, Any]]:
    """The same rows at once, of a board on a line, for a user. Raises OncewayError: also for what
    the access rules do not let this user do.
    """
    acl = engine.broker.acl
    if not acl.may_write(user, "", f"commands/{device}"):
        raise OncewayError(f"the access rules do not let you publish to commands/{device}")
    if not acl.may_read(user, "", f"logs/{device}"):
        raise OncewayError(f"the access rules do not let you read logs/{device}")
    try:
        async with asyncio.timeout(WHOLE_S):
            return [row async for row in read(engine, device, PATIENCE_S) if row]
    except TimeoutError:
        raise OncewayError(f"the log has not ended within {WHOLE_S} s", device) from None


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
                heard.put_nowait(packet.payload[:LONGEST].decode(errors="replace"))

    client = Client(engine, "log", INSIDE, came)
    try:
        yield heard
    finally:
        client.leave()


async def _next(heard: asyncio.Queue[str], within: float) -> str | None:
    """None: nothing came."""
    try:
        return await asyncio.wait_for(heard.get(), within)
    except TimeoutError:
        return None


def _silent(device: str, wait_s: int, taken: bool) -> OncewayError:
    if taken:
        return OncewayError(
            f"the board has the command, and has not answered within {wait_s} s",
            device,
            "Is its firmware built with OW_LOG_SIZE? Do the access rules let it write to"
            f" logs/{device}?",
        )
    return OncewayError(
        f"the board has not taken the command within {wait_s} s",
        device,
        f"It takes it when it speaks next; what it answers then comes on logs/{device}",
    )
