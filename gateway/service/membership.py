"""The part of a gateway that belongs to its site: links to the other members, and what goes over
them. Imported only where the configuration has a `[site]`: it takes memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.service.site import Site, StoreParts
from gateway.service.site_passing import Forwarding
from gateway.site.net import Net
from gateway.site.passing_messages import FIRST as PASSING
from gateway.store.lives import word

if TYPE_CHECKING:
    from gateway.broker.session import Session
    from gateway.config import Config
    from gateway.service.engine import Engine


class Channel(NamedTuple):
    """One kind of talk between members. first: its frames begin with this byte or a higher one, up
    to the next channel's. received: may raise SiteError, which ends the link.
    """

    first: int
    joined: Callable[[str], None]
    left: Callable[[str], None]
    received: Callable[[str, bytes], None]


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
        self._forwarding = passing = Forwarding(
            engine,
            config.gateway.name,
            config.site.members,
            self._send,
            asyncio.get_running_loop(),
        )
        self._channels = [
            Channel(0, site.joined, site.left, site.received),
            Channel(PASSING, passing.joined, passing.left, passing.received),
        ]
        """In order of their first bytes."""
        generation = word(config.gateway.data) or ""
        self._net = Net(config, generation, self._joined, self._left, self._received)

    def _send(self, member: str, frame: bytes) -> None:
        self._net.send(member, frame)

    def _joined(self, member: str) -> None:
        for channel in self._channels:
            channel.joined(member)

    def _left(self, member: str) -> None:
        for channel in self._channels:
            channel.left(member)

    def _received(self, member: str, frame: bytes) -> None:
        kind = frame[0] if frame else 0
        channel = next(item for item in reversed(self._channels) if item.first <= kind)
        channel.received(member, frame)

    async def start(self) -> None:
        """Raises OncewayError: there is no certificate, or the address is taken."""
        await self._net.start()

    async def close(self) -> None:
        await self._net.close()
        self._forwarding.close()
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
        return [here | {"figures": self._site.figures() | self._forwarding.figures()}, *others]
