"""Boards of a site that have a session at none of its gateways: they have not connected yet, or
were away for longer than a session lasts.

In: names without a session here, and the sessions of the other gateways. Out: the names that have a
session at no gateway. A single gateway of the site judges them, so that people get one
notification.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection

log = logging.getLogger(__name__)

ASK_S = 60.0
"""Seconds between two queries while a board has no session at any gateway."""
SELDOM_S = 600.0
"""Seconds between two queries while each board has a session at a gateway. The last reply counts
for this time after the first query without one: a gateway that restarts is silent for a while.
"""

Holders = Callable[[], Awaitable[set[str] | None]]
"""Returns the clients whose sessions other gateways have; None if unknown, or if another gateway
does the query.
"""


class Nowhere:
    """The search for boards without a session. holders: None without a site."""

    def __init__(self, holders: Holders | None) -> None:
        self._holders = holders
        self._held: set[str] | None = None
        """The clients in the last reply; None if it no longer counts."""
        self._seen: frozenset[str] = frozenset()
        """The names of the last query; a name added since then was not part of it."""
        self._asked = -math.inf
        self._unanswered: float | None = None
        """Time of the first query since the last reply, if there was one."""
        self._task: asyncio.Task[None] | None = None

    def among(self, names: Collection[str], now: float, before: Collection[str] = ()) -> set[str]:
        """Return the names that have a session at no gateway, as of the last reply. before: the
        names that count until the first reply.
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
