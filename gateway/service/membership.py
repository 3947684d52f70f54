"""The part of a gateway that belongs to its site: links to the other members, and what goes over
them. Imported only where the configuration has a `[site]`: it takes memory.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gateway.service.site import Site, StoreParts
from gateway.site.net import Net
from gateway.store.lives import word

if TYPE_CHECKING:
    from gateway.broker.session import Session
    from gateway.config import Config
    from gateway.service.engine import Engine


class Membership:
    """Open from `start` to `close`."""

    def __init__(self, config: Config, engine: Engine) -> None:
        assert config.site is not None  # noqa: S101 - said above
        broker = engine.broker
        self._parts = StoreParts(config.gateway.data, lambda: broker.now)
        self._site = site = Site(
            engine,
            config.gateway.name,
            config.site.members,
            self._send,
            self._parts,
            asyncio.get_running_loop(),
        )
        generation = word(config.gateway.data) or ""
        self._net = Net(config, generation, site.joined, site.left, site.received)

    def _send(self, member: str, frame: bytes) -> None:
        self._net.send(member, frame)

    async def start(self) -> None:
        """Raises OncewayError: there is no certificate, or the address is taken."""
        await self._net.start()

    async def close(self) -> None:
        await self._net.close()
        self._site.close()
        self._parts.close()

    def state_of(self, session: Session) -> str | None:
        return self._site.state_of(session)

    def given(self) -> dict[str, str]:
        """Clients whose sessions have left and have not arrived yet, each with the member."""
        return self._site.holder.given_to()

    def rows(self) -> list[dict[str, Any]]:
        """Of all members, this one first (`net.py`), with what this one has counted: `figures`. Of
        each other how often it was `silent`, and whether it has given a `lease`: while one has not,
        each client that comes is asked for.
        """
        here, *others = self._net.status()
        member, now = self._site.member, asyncio.get_running_loop().time()
        for row in others:
            row["silent"] = member.statistics.by_member.get(row["name"], 0)
            row["lease"] = member.contacts[row["name"]].lease > now
        return [here | {"figures": self._site.figures()}, *others]
