"""Boards of a site that have a session at none of its gateways: they have not connected yet, or
were away for longer than a session lasts.

In: names of boards without a session at this gateway, and the sessions of the other gateways. Out:
the names that have a session at no gateway. Only one gateway of the site judges them, so that
people get one notification.

A silent gateway may be restarting, and may have a board's session. So the last complete reply is
used for `SELDOM_S`, and a board that is a problem remains a problem. After `SELDOM_S` the silent
gateway counts as dead: only the replies of the other gateways decide.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping

log = logging.getLogger(__name__)

ASK_S = 60.0
"""Seconds between two queries while a board has no session at any gateway."""
SELDOM_S = 600.0
"""Seconds between two queries while each board has a session at a gateway. If a gateway does not
answer, the last complete reply stays in use for this time. Then the new replies of the other
gateways are used.
"""

Holders = Callable[[], Awaitable[Mapping[str, set[str] | None]]]
"""Function that returns, for each other gateway, the clients whose sessions it has; None for a
silent gateway.
"""


class Nowhere:
    """The search for boards without a session at any gateway. holders: returns the sessions of the
    other gateways; None without a site. is_ours: returns whether this gateway does the search for
    its site.
    """

    def __init__(self, holders: Holders | None, is_ours: Callable[[], bool] = lambda: True) -> None:
        self._holders = holders
        self._is_ours = is_ours
        self._with_session: set[str] | None = None
        """The boards with a session, according to the last complete reply, or to the last partial
        one if a gateway has been silent for `SELDOM_S`. None before the first such reply.
        """
        self._seen: frozenset[str] = frozenset()
        """Names of the boards in the query to which `_with_session` is the reply."""
        self._partial: tuple[set[str], frozenset[str]] | None = None
        """If a gateway did not answer the last query: the boards with a session according to the
        other gateways, and the names in the query. Else None.
        """
        self._asked = -math.inf
        self._unanswered: float | None = None
        """Time of the first query after the last complete reply; None if all queries got complete
        replies.
        """
        self._task: asyncio.Task[None] | None = None

    def among(self, names: Collection[str], now: float, before: Collection[str] = ()) -> set[str]:
        """Return the names that have a session at no gateway, according to the last reply. now:
        seconds on the time axis. before: names that were a problem at the last check, perhaps
        before a restart. They are returned until the first complete reply. If a gateway stays
        silent, the other gateways' reply counts after SELDOM_S.
        """
        if not self._is_ours():
            self._with_session, self._partial = None, None
            self._unanswered, self._asked = None, -math.inf
            return set()
        idle = self._task is None or self._task.done()
        overdue = self._unanswered is not None and now - self._unanswered >= SELDOM_S
        if overdue and self._partial is not None:
            self._with_session, self._seen = self._partial
        wait = (
            SELDOM_S
            if self._with_session is not None and self._with_session.issuperset(names)
            else ASK_S
        )
        if self._holders is not None and names and idle and now - self._asked >= wait:
            first = self._asked == -math.inf
            self._asked = now
            if self._unanswered is None:
                self._unanswered = now
            if first:
                self._with_session, self._seen = set(), frozenset(before)
            self._task = asyncio.get_running_loop().create_task(
                self._ask(self._holders, frozenset(names))
            )
        if self._with_session is None:
            return set()
        return {name for name in names if name in self._seen and name not in self._with_session}

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _ask(self, holders: Holders, names: frozenset[str]) -> None:
        try:
            replies = await holders()
        except Exception:
            log.exception("the search for boards without a session met an internal error")
            return
        with_session = {client for clients in replies.values() for client in clients or ()} & names
        if None in replies.values():
            self._partial = with_session, names
        else:
            self._with_session, self._seen = with_session, names
            self._partial, self._unanswered = None, None
