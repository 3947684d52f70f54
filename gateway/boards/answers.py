"""A command to a board, and the board's answer.

In: a board and a command. Out: the answer, which comes at QoS 2 on `logs/NAME` with the command's
Correlation Data. A radio board gets the command when it next sends, which may take long.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

from gateway.boards.commands import send
from gateway.boards.listening import ALIVE_S, ANSWER_S, listen, message
from gateway.boards.reports import UNKNOWN_COMMAND
from gateway.errors import OncewayError
from gateway.mqtt.packets import Publish
from gateway.mqtt.properties import PropertyId
from gateway.payload.answers import CORRELATION, Answer, Kind, read
from gateway.runtime.engine import Engine

_UNKNOWN = 1
"""Reason of a refusal: the board does not know the command."""
_GRACE_S = 3.0
"""Seconds for which a line `unknown command` does not count as the answer yet. In this time, an
answer that gives the reason may arrive: some firmware sends both.
"""


async def ask(
    engine: Engine, device: str, text: str, wait_s: int | None
) -> AsyncIterator[dict[str, Any]]:
    """Send a command, and yield `{"answer": kind, "number": …, "words": …}`. Until the answer
    arrives, yield empty rows. wait_s: longest wait in seconds. If it is None, do not wait: yield
    `{"sent": True}` once the command is on disk. Raises OncewayError if the command was not sent,
    or if no answer came within wait_s, or within ANSWER_S seconds after the board had received the
    command.
    """
    if wait_s is None:
        if problem := await send(engine, device, text):
            raise OncewayError(problem.rstrip("."), device)
        yield {"sent": True}
        return
    correlation = secrets.token_bytes(CORRELATION)
    async with listen(engine, device, "answer") as heard:
        if problem := await send(engine, device, text, correlation):
            raise OncewayError(problem.rstrip("."), device)
        clock, received = asyncio.get_running_loop().time, False
        end = clock() + wait_s
        unknown: Answer | None = None
        while True:
            if not received and not _waits(engine, device):
                received, end = True, min(end, clock() + ANSWER_S)
            packet = await message(heard, min(end - clock(), ALIVE_S))
            answer = _answer(packet, correlation) if packet else None
            if packet and not unknown and (unknown := _unknown(packet, text, correlation)):
                end = min(end, clock() + _GRACE_S)
            if clock() >= end:
                answer = answer or unknown
            if answer:
                yield {"answer": answer.kind, "number": answer.number, "words": answer.words}
                return
            if clock() >= end:
                raise _silent(device, wait_s, received or not _waits(engine, device))
            yield {}


def _waits(engine: Engine, device: str) -> bool:
    """Whether the gateway has a message for the board that is not fully acknowledged yet."""
    session = engine.broker.sessions.get(device)
    return session is not None and bool(session.send_flow.messages)


def _answer(packet: Publish, correlation: bytes) -> Answer | None:
    """Return the answer in a message; None if it answers another command. correlation: Correlation
    Data of this command.
    """
    echoed = (packet.properties or {}).get(PropertyId.CORRELATION_DATA)
    return read(packet.payload) if echoed == correlation else None


def _unknown(packet: Publish, text: str, correlation: bytes) -> Answer | None:
    """Return a refusal if a message is a line of text which says that the command is unknown; else
    None. Firmware without answers sends such a line in place of an answer. text: the command.
    """
    payload = packet.payload.decode(errors="replace")
    if not packet.qos and payload.startswith(UNKNOWN_COMMAND):
        about = payload.removeprefix(UNKNOWN_COMMAND)
        if about and text.startswith(about):
            return Answer(Kind.REFUSED, _UNKNOWN, correlation)
    return None


def _silent(device: str, wait_s: int, received: bool) -> OncewayError:
    if received:
        return OncewayError(
            f"the board has received the command, but has not answered within {wait_s} s",
            device,
            "Is its firmware built with OW_ANSWERS, and does its sketch call ow_mqtt_answer? Do the"
            f" access rules let it write to logs/{device}?",
        )
    return OncewayError(
        f"the board has not acknowledged the command within {wait_s} s",
        device,
        f"The board gets the command when it sends next; the answer then arrives on logs/{device}",
    )
