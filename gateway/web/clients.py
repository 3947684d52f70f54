"""Sessions, retained messages and refusals, for the page. In: a running broker, and a search text.
Out: the first matches. The search yields to the event loop between parts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from itertools import islice
from typing import Any

from gateway.broker.retained import Retained
from gateway.runtime.session_rows import view
from gateway.web.messages import payload_text
from gateway.web.sight import Sight
from gateway.web.source import Source

MOST = 200
_AT_ONCE = 256

End = Callable[[str], Awaitable[bool]]
"""A function that ends the session of a client. Returns False if there is none."""


class Clients:
    def __init__(self, source: Source, end: End) -> None:
        self._source = source
        self.end = end

    async def find(self, sight: Sight, wanted: str) -> dict[str, Any]:
        """Return sessions with `wanted` in their client identifier, address or user, and retained
        messages with `wanted` in their topic, as far as `sight` may see them: at most MOST of each.
        Also return the counts of all refusals.
        """
        broker = self._source.broker
        wanted = wanted.lower()
        return {
            "sessions": await self._sessions(sight, wanted),
            "retained": await self._retained(sight, wanted),
            "refusals": [
                {"request": request, "reason": reason.name.lower(), "count": count}
                for (request, reason), count in broker.statistics.refusals.items()
            ],
        }

    async def _sessions(self, sight: Sight, wanted: str) -> dict[str, Any]:
        broker = self._source.broker
        found: list[dict[str, Any]] = []
        count = connected = fit = 0
        for index, session in enumerate(list(broker.sessions.values())):
            if index % _AT_ONCE == 0:
                await asyncio.sleep(0)  # yield to the event loop
            if session.ended:
                continue
            if not session.foreign:  # a client, and not another gateway of the site
                count += 1
                connected += session.connection is not None
            shown = view(session, broker.now)
            if not sight.session(shown):
                continue
            if wanted in f"{shown.client}\n{shown.address}\n{shown.user}".lower():
                fit += 1
                if len(found) < MOST:
                    found.append(asdict(shown))
        return {"count": count, "connected": connected, "fit": fit, "shown": found}

    async def _retained(self, sight: Sight, wanted: str) -> dict[str, Any]:
        broker = self._source.broker
        found: list[dict[str, Any]] = []
        last: str | None = None
        while len(found) < MOST and (topics := broker.retained.after("", last, _AT_ONCE)):
            last = topics[-1]
            fitting = (
                message
                for topic in topics
                if wanted in topic.lower()
                and sight.topic(topic)
                and (message := broker.retained.get(topic)) is not None
            )
            found += map(_shown, islice(fitting, MOST - len(found)))
            await asyncio.sleep(0)
        return {"count": broker.retained.count, "bytes": broker.retained.size, "shown": found}


def _shown(message: Retained) -> dict[str, Any]:
    """Return a retained message as JSON. kind, text: as in `messages.py`."""
    kind, text = payload_text(message.topic, message.payload)
    return {
        "topic": message.topic,
        "qos": message.qos,
        "size": len(message.payload),
        "kind": kind,
        "text": text,
    }
