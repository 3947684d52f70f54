"""The gateway's own question to boards: how often do you measure?

In: boards whose status came without a start, so that somebody may have given them another interval
by MQTT. Out: the command `interval` to each, at most once in ASK_S. The board's answer comes to
`Boards` in `reports.py`. A board's memory wears with each command, so a board that was told its
interval by the gateway is not asked.
"""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING

from gateway.boards.commands import send
from gateway.boards.reports import QUESTION
from gateway.payload.answers import CORRELATION

if TYPE_CHECKING:
    from gateway.boards.expected import Expected
    from gateway.boards.reports import Boards
    from gateway.runtime.engine import Engine

ASK_S = 600.0


class Questions:
    def __init__(self, engine: Engine, boards: Boards, expected: Expected) -> None:
        self._engine = engine
        self._boards = boards
        self._expected = expected
        self._asked: dict[str, float] = {}
        """By board: when it was asked last, on the time axis."""

    async def ask(self) -> None:
        """Ask those boards that are connected and whose turn it is."""
        now = self._engine.broker.now
        for name in list(self._boards.unsure):
            knows_it_not = self._boards.asked.get(name) == b""
            if knows_it_not or name not in self._expected.states or self._expected.is_told(name):
                del self._boards.unsure[name]
            elif now - self._asked.get(name, -math.inf) >= ASK_S and self._is_here(name):
                del self._boards.unsure[name]
                self._asked[name] = now
                correlation = self._boards.asked[name] = secrets.token_bytes(CORRELATION)
                await send(self._engine, name, QUESTION, correlation)

    def _is_here(self, name: str) -> bool:
        session = self._engine.broker.sessions.get(name)
        return session is not None and session.connection is not None
