"""The site's part of a gateway: links to the other members, and all channels over them. Imported
only if the configuration has a `[site]`, because it takes memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from gateway.broker.session import Session
from gateway.config import Config, SiteSection
from gateway.config.site_members import follow, unlike
from gateway.errors import OncewayError
from gateway.runtime.engine import Engine
from gateway.runtime.session_rows import session_rows
from gateway.site.forwarding.messages import FIRST as forwarding_frames
from gateway.site.links.net import Net
from gateway.site.pki.folder import RETURNED
from gateway.site.replication.messages import FIRST as copy_frames
from gateway.site.rules import session_list as listings
from gateway.site.shared_state.boards import FIRST as sharing_frames
from gateway.site.shared_state.retained import FIRST as retained_frames
from gateway.site.wiring.conflicts import Conflicts
from gateway.site.wiring.forwarding import Forwarding
from gateway.site.wiring.local_member import Site, StoreParts
from gateway.site.wiring.registry import SiteRegistry
from gateway.site.wiring.replicas import SiteCopies
from gateway.site.wiring.retained import SiteRetained
from gateway.site.wiring.session_list import Counts, Listing
from gateway.site.wiring.sessions import is_busy
from gateway.site.wiring.suspect_answers import Doubts
from gateway.store.generation import last_generation
from gateway.system.jobs import LOOP_S, Job
from gateway.system.logs import printable

log = logging.getLogger(__name__)

HOP_S = 2.0
"""If no session has moved for this time, in seconds, a stop waits no longer for moves. A
disconnected client that knows another member is expected to connect to it within this time.
"""
HAND_OVER_S = 45.0
"""Longest time, in seconds, that a stop waits while sessions move. If no session moves, the wait
ends earlier. `TimeoutStopSec` of the gateway's unit is longer.
"""
CROWD, MOST_CROWDS = 64, 16
"""A stopping gateway disconnects its clients in groups, because the other gateways have to answer
the lookups of a whole group within a second. CROWD: clients in a group. MOST_CROWDS: with more
clients than CROWD x MOST_CROWDS, the groups become larger, and their number hardly grows.
"""
CROWD_S = 0.25
"""Seconds without a session move after which the next group of clients is disconnected, even if
some sessions of the previous group remain.
"""
HOLD_S = 1.0
"""Longest time, in seconds, for which the messages for a new link wait for a third member without a
link. The messages wait only if that member may have an older session of a client that is here
(`_begin_forwarding`). The third member is dialled, or knocked at, at once, and may join soon.
"""
SETTLED_S = 0.25
"""Seconds for which waiting messages still wait after the last missing link has begun. In this
time, the older one of two sessions of a client ends.
"""
_LOOK_S = 0.02
_AGAIN_S = 1.0


class Channel(NamedTuple):
    """One kind of messages between members. first: lowest first byte of its frames; the highest is
    below `first` of the next channel. received: handles a frame; if it raises SiteError, the link
    ends.
    """

    first: int
    joined: Callable[[str], None]
    link_ended: Callable[[str], None]
    received: Callable[[str, bytes], None]


class Membership:
    """The membership of this gateway in its site, open from `start` to `close`. restored: whether
    the store is of another generation than at the last start.
    """

    def __init__(self, config: Config, engine: Engine, restored: bool = False) -> None:
        section = config.site
        assert section is not None  # noqa: S101 - said above
        follow(config)
        _tell_unlike(config)
        self._config, self._engine = config, engine
        self._broker = broker = engine.broker
        self._name = config.gateway.name
        self._parts = StoreParts(config.gateway.data, lambda: broker.now)
        self._doubts = Doubts(config.gateway.data, lambda: broker.utc)
        self._copies = SiteCopies(
            engine,
            section,
            config.gateway.data,
            self._send,
            asyncio.get_running_loop(),
            restored=restored,
        )
        self._conflicts = Conflicts(broker.log_throttle)
        self.registry = SiteRegistry(
            config.gateway.data,
            self._send,
            self._name,
            lambda found: self._conflicts.tell(
                found.sentence(config.site.members if config.site else ())
            ),
        )
        self._retained = SiteRetained(
            engine, self._send, asyncio.get_running_loop(), self._conflicts.tell
        )
        self._changing: asyncio.Task[None] | None = None
        """The task that changes to another list of members; None before the first change."""
        text = f"{config.site_folder}: the changed list of members does not take effect"
        self._change_job = Job("site_change", text, LOOP_S)
        self._build(section, os.access(config.site_folder / RETURNED, os.F_OK))
        generation = last_generation(config.gateway.data) or ""
        self._net = Net(
            config, generation, self._joined, self._link_ended, self._received, self._list_changed
        )

    def _build(self, section: SiteSection, returned: bool = False) -> None:
        """Create the parts that know the names of the members. returned: see `Site`. Problems with
        the file RETURNED are reported by `start`.
        """
        engine, name, broker = self._engine, self._name, self._broker
        self._site = site = Site(
            engine,
            name,
            section.members,
            self._send,
            self._parts,
            asyncio.get_running_loop(),
            self._doubts.add,
            returned,
        )
        self._listing = listing = Listing(
            [other for other in section.members if other != name],
            self._send,
            site.up,
            self._counts,
            lambda: session_rows(broker, self),
        )
        self._forwarding = forwarding = Forwarding(
            engine,
            name,
            section.members,
            self._send,
            asyncio.get_running_loop(),
        )
        copies, sharing, retained = self._copies, self.registry.sharing, self._retained
        self._channels = [
            Channel(
                0,
                lambda member: site.joined(member, self._net.has_begun(member)),
                lambda member: site.link_ended(member, self._net.has_stopped(member)),
                site.received,
            ),
            Channel(listings.FIRST, lambda _: None, listing.link_ended, listing.received),
            Channel(
                forwarding_frames,
                self._begin_forwarding,
                forwarding.link_ended,
                forwarding.received,
            ),
            Channel(sharing_frames, sharing.joined, sharing.link_ended, sharing.received),
            Channel(retained_frames, retained.joined, retained.link_ended, retained.received),
            Channel(copy_frames, copies.joined, copies.link_ended, copies.received),
        ]
        """Channels, in order of their first bytes."""

    def _list_changed(self) -> None:
        if self._changing is None or self._changing.done():
            self._changing = asyncio.create_task(self._change())

    async def _change(self) -> None:
        """Continue with the changed list of members, without a restart. Clients stay connected. All
        links to members are closed and made again.
        """
        section = self._config.site
        while section is not None and follow(self._config):
            names = ", ".join(map(printable, section.members))
            log.warning("the site has these members now: %s", names)
            _tell_unlike(self._config)
            await self._net.close()
            while is_busy(self._site.holder):  # noqa: ASYNC110 - a commit that moves a session
                await asyncio.sleep(_LOOK_S)
            self._engine.begin()
            with self._broker.step:
                self._forwarding.close()
                waiting = self._site.hand_on()
                self._build(section)
                self._site.take_on(*waiting)
            await self._start_net()

    async def _start_net(self) -> None:
        """Start the links again. If the address is not free yet, try again until it is."""
        while True:
            try:
                await self._net.start()
            except OncewayError as error:
                self._change_job.fail(error)
                await asyncio.sleep(_AGAIN_S)
            else:
                self.started()
                self._change_job.succeed()
                return

    def _send(self, member: str, frame: bytes) -> None:
        self._net.send(member, frame)

    def _joined(self, member: str) -> None:
        for channel in self._channels:
            channel.joined(member)

    def _begin_forwarding(self, member: str) -> None:
        """Begin to exchange messages over a new link to `member`. If a member without a link may
        have an older session of a client that is here, the messages wait: `member` may reach that
        session, too, and then both sessions would deliver its messages.
        """
        absent = self._site.member.contacts.keys() - self._site.up
        holds = any(any(self._site.holder.older_at(name)) for name in absent)
        self._forwarding.joined(member, HOLD_S if holds else 0.0)
        if not absent:
            self._forwarding.begin_in(SETTLED_S)

    def _link_ended(self, member: str) -> None:
        for channel in self._channels:
            channel.link_ended(member)

    def _received(self, member: str, frame: bytes) -> None:
        kind = frame[0] if frame else 0
        channel = next(item for item in reversed(self._channels) if item.first <= kind)
        channel.received(member, frame)

    @property
    def jobs(self) -> list[Job]:
        jobs = [self.registry.job, self._doubts.job, self._change_job]
        return [*jobs, *self._copies.jobs, *self._net.jobs]

    async def start(self) -> None:
        """Start the links, and the sharing of the registry. Raises OncewayError if there is no
        certificate, or the address is in use.
        """
        await self._net.start()
        self.registry.start()
        self.started()

    def started(self) -> None:
        """For START_S from now on, expect the members that have had no link yet to connect. Called
        when the links have started, and again when this gateway's start is complete.
        """
        self._site.started()

    @property
    def has_company(self) -> bool:
        """Whether another member is connected."""
        return bool(self._site.up)

    async def hand_over(
        self, clients: Sequence[str], send_away: Callable[[Collection[str]], None]
    ) -> None:
        """Disconnect these clients, group by group, and wait until their sessions have moved to
        other members. The wait also ends if no session has moved for HOP_S, if no other member is
        connected, or after HAND_OVER_S.
        """
        end = asyncio.get_running_loop().time() + HAND_OVER_S
        size = max(CROWD, len(clients) // MOST_CROWDS)
        for begin in range(0, len(clients), size):
            group = set(clients[begin : begin + size])
            send_away(group)
            await self._moved(group, CROWD_S, end)
        await self._moved(clients, HOP_S, end)

    async def _moved(self, clients: Collection[str], patience: float, end: float) -> None:
        """Wait for these sessions to move to other members. Return when all have moved, when none
        has moved for `patience` seconds, when no other member is connected, or at the time `end` of
        the event loop.
        """
        loop = asyncio.get_running_loop()
        before, quiet = -1, 0.0
        while self.has_company and loop.time() < end:
            remaining = sum(client in self._broker.sessions for client in clients)
            remaining += len(self.moved_out())
            if remaining != before:
                before, quiet = remaining, loop.time() + patience
            if not remaining or loop.time() >= quiet:
                return
            await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        if self._changing is not None:
            self._changing.cancel()
            await asyncio.gather(self._changing, return_exceptions=True)
        await self.registry.close()
        await self._net.close()
        self._forwarding.close()
        self._retained.close()
        await self._copies.close()
        self._site.close()
        self._doubts.close()
        self._parts.close()

    def state_of(self, session: Session) -> str | None:
        return self._site.state_of(session)

    def moved_out(self) -> dict[str, str]:
        """Return clients whose sessions have left and have not arrived yet, each with its new
        member.
        """
        return self._site.holder.given_to()

    def sessions(self) -> AsyncIterator[dict[str, Any]]:
        """Return the sessions of the other members (`session_list.py`)."""
        return self._listing.sessions()

    async def holders(self) -> dict[str, set[str] | None]:
        """Return, for each other member, the clients whose sessions it has; None for a member that
        does not answer.
        """
        return await self._listing.holders()

    @property
    def is_first(self) -> bool:
        """Whether this is the member that looks for boards without a session: no connected member
        has a name that sorts before this gateway's.
        """
        return all(self._name <= other for other in self._site.up)

    async def shown(self) -> dict[str, Any]:
        """Return the data for the page. members: `rows`, each with `counts`, which is None for a
        member that does not answer. removed: names that the site's authority has removed.
        """
        counts = await self._listing.counts()
        own, *others = self.rows()
        members = [own | {"counts": asdict(self._counts())}]
        for row in others:
            found = counts[row["name"]]
            members.append(row | {"counts": found and asdict(found)})
        return {"members": members, "removed": self._net.removed_members()}

    def _counts(self) -> Counts:
        sessions = [item for item in self._broker.sessions.values() if not item.foreign]
        connected = sum(item.connection is not None for item in sessions)
        place = self._site.figures()
        return Counts(len(sessions), connected, place["given"], place["in_doubt"])

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each member, this one's first (`links/far_member.py`).

        The row of another member has these fields. `silent`: number of session lookups in which it
        was silent. `lease`: whether it has given a lease that is still valid; without one, each new
        client is looked up. `boards`: number of changes of the device registry that the member
        possibly lacks. `retained`: number of retained messages that the member possibly lacks.

        The row of this member has these fields. `figures`: its counters. `copies`: how its spool
        and those of others are replicated (`replicas.py`). `conflicts`: the last changes that were
        lost (`conflicts.py`). `file`: how [site.members] of the configuration file differs from the
        signed list.
        """
        own, *others = self._net.status()
        member, now = self._site.member, asyncio.get_running_loop().time()
        for row in others:
            row["silent"] = member.statistics.by_member.get(row["name"], 0)
            row["boards"] = self.registry.sharing.owed.get(row["name"])
            row["retained"] = self._retained.sharing.owed.get(row["name"])
            contact = member.contacts[row["name"]]
            row["lease"] = contact.lease > now
            if contact.mute and contact.up:
                row["problem"] = row["problem"] or "it answers no queries about sessions"
        parts = self._site, self._forwarding, self._retained
        figures = {name: count for part in parts for name, count in part.figures().items()}
        own |= {"figures": figures, "copies": self._copies.figures()}
        own |= {"conflicts": self._conflicts.sentences(), "file": unlike(self._config)}
        return [own, *others]


def _tell_unlike(config: Config) -> None:
    if (text := unlike(config)) is not None:
        log.warning("%s", printable(text))
