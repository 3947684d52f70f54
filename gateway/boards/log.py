"""A board's log, for people who search for a fault.

In: a board's name. Out: the lines in the board's RAM, the oldest first; firmware/src/ow_log.h has
their format. The gateway sends the command `log`, and the board answers on `logs/NAME`. A radio
board gets the command when it next sends, which may take long.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from gateway.boards.commands import send
from gateway.boards.listening import ALIVE_S, ANSWER_S, MOST, PATIENCE_S, listen, message
from gateway.boards.reports import UNKNOWN_COMMAND
from gateway.errors import OncewayError, Unknown
from gateway.runtime.engine import Engine

MOST_LINES = MOST
"""Largest number of lines that the gateway reads from one board's log."""
LONGEST = 256
"""Largest number of bytes of a line that are read. A board sends a time and at most 40 characters.
"""
WHOLE_S = 60
"""Longest time in seconds to read the whole log of a board on a serial line."""

_BUILD = "Build the firmware with OW_LOG_SIZE, as the bundled sensor firmware for serial lines is"
_LINE = re.compile(r"(\+?)(\d{1,10}) (.*)", re.DOTALL)
_END = re.compile(r"\d{1,5}")


async def read(engine: Engine, device: str, wait_s: int) -> AsyncIterator[dict[str, Any]]:
    """Yield a row `{"utc": seconds or None, "uptime": seconds since its start or None, "text": …}`
    for each line, and at last `{"lost": number of older lines that the board has dropped}`. After
    MOST_LINES lines, stop without this last row. While the gateway waits for the board, yield empty
    rows. wait_s: longest wait for the board in seconds. Raises OncewayError if the board is not
    connected, or does not answer in time.
    """
    session = engine.broker.sessions.get(device)
    if session is None or session.connection is None:
        error = Unknown if session is None else OncewayError
        raise error("the board is not connected", device, "See: onceway session list")
    async with listen(engine, device, "log") as heard:
        if problem := await send(engine, device, "log"):
            raise OncewayError(problem.rstrip("."), device)
        clock, flow, lines = asyncio.get_running_loop().time, session.send_flow, 0
        began, limit, received = clock(), wait_s, False
        while lines < MOST_LINES:
            if not received and not flow.messages:
                began, limit, received = clock(), min(limit, ANSWER_S), True
            remaining = began + limit - clock()
            packet = await message(heard, min(remaining, ALIVE_S))
            if packet is None:
                if remaining <= ALIVE_S:
                    raise _silent(device, limit, received)
                yield {}
                continue
            text = packet.payload[:LONGEST].decode(errors="replace")
            began, lines = clock(), lines + 1
            if line := _LINE.fullmatch(text):
                since_start, seconds, entry = line.groups()
                yield {
                    "utc": None if since_start else int(seconds),
                    "uptime": int(seconds) if since_start else None,
                    "text": entry,
                }
            elif _END.fullmatch(text):
                yield {"lost": int(text)}
                return
            elif text == UNKNOWN_COMMAND + "log":
                raise OncewayError("the board keeps no log", device, _BUILD)


async def whole(engine: Engine, user: str, device: str) -> list[dict[str, Any]]:
    """Return the rows of a serial board's log, without empty rows (see `read`). Raises
    OncewayError, for example if the access rules do not let the user read it.
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


def _silent(device: str, wait_s: int, received: bool) -> OncewayError:
    if received:
        return OncewayError(
            f"the board has received the command, but has not answered within {wait_s} s",
            device,
            "Is its firmware built with OW_LOG_SIZE? Do the access rules let it write to"
            f" logs/{device}?",
        )
    return OncewayError(
        f"the board has not acknowledged the command within {wait_s} s",
        device,
        f"The board gets the command when it sends next; the answer then arrives on logs/{device}",
    )
