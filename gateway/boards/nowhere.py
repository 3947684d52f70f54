"""Boards of a site that have a session at none of its gateways: they came nowhere yet, or have been
away for longer than a session lasts.

In: names without a session here, and what the other gateways hold. Out: those names that no gateway
holds. Only one gateway of the site judges them, so that people are told once.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection

log = logging.getLogger(__name__)

ASK_S = 60.0
"""Time between two questions while a board is held nowhere."""
SELDOM_S = 600.0
"""The same while each board is held somewhere. The last answer counts until this time after
the first question without one: a gateway that starts again is silent for a while.
"""

Holders = Callable[[], Awaitable[set[str] | None]]
"""Clients whose sessions other gateways have; None if that is not known, or not for this gateway to
ask.
"""


class Nowhere:
    """holders: None without a site."""

    def __init__(self, holders: Holders | None) -> None:
        self._holders = holders
        self._held: set[str] | None = None
        """What the others had at the last answer; None if that counts no more."""
        self._seen: frozenset[str] = frozenset()
        """The names of the last question: a board that is new since then was not asked for."""
        self._asked = -math.inf
        self._unanswered: float | None = None
        """When the first question after the last answer was asked."""
        self._task: asyncio.Task[None] | None = None

    def among(self, names: Collection[str], now: float, before: Collection[str] = ()) -> set[str]:
        """Return those of these names that no gateway holds, as of the last answer. before: what
        counts until the first answer.
        """
        idle = self._task is None or self._task.done()
        if self._unanswered is not None and now - self._unanswered >= SELDOM_S:
            self._held, self._seen = None, frozenset()
        wait = SELDOM_S if self._held is not None and self._held.issuperset(names) else ASK_S
        if self._holders is not None and names and idle and now - self._asked >= wait:
            first = self._asked == -math.inf
            self._asked = now
            if self._unanswered is None:
                self._unanswered = now
            if first:
                self._held, self._seen = set(), frozenset(before)
            self._task = asyncio.get_running_loop().create_task(
                self._ask(self._holders, frozenset(names))
            )
        if self._held is None:
            return set()
        return {name for name in names if name in self._seen and name not in self._held}

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _ask(self, holders: Holders, names: frozenset[str]) -> None:
        try:
            held = await holders()
        except Exception:
            log.exception("the search for boards without a session met an internal error")
            return
        if held is not None:
            self._held, self._seen, self._unanswered = held, names, None
