"""The gateways of one site, and the connections between them.

In: frames between members, and faults of their connections. Out: the same frames, in order, after
some milliseconds. If one end dies, the connection ends, and the other end learns of it a moment
later. A connection that is cut carries nothing. Its frames arrive when it is restored, unless an
end has given it up by then. Each member has the real parts of a gateway in a site
(`gateway/site/wiring/membership.py`), but no certificates and sockets, which tests/site has.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations
from random import Random
from typing import cast

from gateway.site.forwarding.messages import FIRST as FORWARDING
from gateway.site.replication.messages import FIRST as COPIES
from gateway.site.shared_state.retained import FIRST as RETAINED
from gateway.site.wiring.forwarding import Forwarding
from gateway.site.wiring.local_member import Site
from gateway.site.wiring.membership import Channel
from gateway.site.wiring.retained import SiteRetained
from gateway.store.move_out import StoredParts
from tests.sim.whole.clock import Time
from tests.sim.whole.gateway import Gateway
from tests.sim.whole.shelf import Shelved

_DELAYS = (0.0005, 0.002, 0.01)
_NOTICED_S = 0.01
_AGAIN_S = 0.2
"""Seconds between two attempts to connect."""
_GIVEN_UP_S = 2.0


class Member:
    """The site's part of a gateway: sessions, forwarding, replicas, and retained messages. It lasts
    from a start of the gateway to its death.
    """

    def __init__(
        self, gateway: Gateway, names: Iterable[str], send: Callable[[str, bytes], None]
    ) -> None:
        loop = cast(asyncio.AbstractEventLoop, gateway.loop)
        broker, database = gateway.broker, gateway.database

        def parts(key: str) -> StoredParts:
            return StoredParts(database, key, lambda: int(broker.now * 1000))

        site = Site(gateway.engine, gateway.name, names, send, parts, loop)
        forwarding = Forwarding(gateway.engine, gateway.name, names, send, loop)
        self._retained = SiteRetained(gateway.engine, send, loop)
        retained = self._retained
        self._copies = copies = Shelved(gateway, send)
        self._channels = (
            Channel(COPIES, copies.joined, copies.link_ended, copies.received),
            Channel(RETAINED, retained.joined, retained.link_ended, retained.received),
            Channel(FORWARDING, forwarding.joined, forwarding.link_ended, forwarding.received),
            Channel(0, site.joined, site.link_ended, site.received),
        )

    @property
    def at_rest(self) -> bool:
        """Whether the member keeps no copies of other members' rows, and has no retained message
        that it still has to send them.
        """
        kept = self._copies.figures()["copies_kept_bytes"]
        return not kept and not any(self._retained.sharing.owed.values())

    @property
    def landed(self) -> int:
        """Number of rows that this member has kept for others and moved into its own spool."""
        return self._copies.landed

    def joined(self, member: str) -> None:
        for channel in self._channels:
            channel.joined(member)

    def link_ended(self, member: str) -> None:
        for channel in self._channels:
            channel.link_ended(member)

    def received(self, member: str, frame: bytes) -> None:
        next(one for one in self._channels if frame[0] >= one.first).received(member, frame)


class _Link:
    """A link between two members. number: number of its connection. 0: not connected."""

    def __init__(self, ends: tuple[str, str]) -> None:
        self.ends = ends
        self.number = 0
        self.cut = False
        self.held: list[Callable[[], object]] = []
        self.clear = dict.fromkeys(ends, 0.0)
        """For each end: the time at which the last frame that was sent to it arrives. Later frames
        do not arrive earlier.
        """


class Network:
    def __init__(self, time: Time, gateways: dict[str, Gateway], seed: str) -> None:
        self._time = time
        self._gateways = gateways
        self._random = Random(seed)
        self._numbers = 0
        self.members: dict[str, Member] = {}
        """Members of the living gateways, by name."""
        self._links = {frozenset(ends): _Link(ends) for ends in combinations(gateways, 2)}
        for link in self._links.values():
            self._connect(link)

    def started(self, gateway: Gateway) -> None:
        send = partial(self._send, gateway.name)
        self.members[gateway.name] = Member(gateway, self._gateways, send)

    def died(self, name: str) -> None:
        self.members.pop(name, None)
        for link in self._links.values():
            if name in link.ends:
                self._break(link)

    def cut(self, one: str, other: str) -> None:
        link = self._links[frozenset((one, other))]
        link.cut = True
        number = link.number

        def give_up() -> None:
            if link.cut and link.number == number:
                self._break(link)

        self._time.after(self._random.random() * _GIVEN_UP_S, give_up)

    def mend(self) -> None:
        for link in self._links.values():
            link.cut = False
            held, link.held = link.held, []
            for arrive in held:
                arrive()

    def _connect(self, link: _Link) -> None:
        """Connect two members if both live and their link is not cut. Otherwise try again later."""
        if not link.number:
            if not link.cut and all(name in self.members for name in link.ends):
                self._numbers += 1
                link.number = self._numbers
                for name, other in (link.ends, link.ends[::-1]):
                    link.clear[name] = self._time.now + self._random.choice(_DELAYS)
                    call = partial(self._tell, link, link.number, name, "joined", other)
                    self._time.at(link.clear[name], call)
            else:
                self._time.after(_AGAIN_S, partial(self._connect, link))

    def _break(self, link: _Link) -> None:
        if link.number:
            link.number = 0
            link.held.clear()
            for name, other in (link.ends, link.ends[::-1]):
                call = partial(self._tell, link, 0, name, "link_ended", other)
                self._time.after(self._random.random() * _NOTICED_S, call)
            self._time.after(_AGAIN_S, partial(self._connect, link))

    def _tell(self, link: _Link, number: int, name: str, what: str, other: str) -> None:
        if link.number == number and name in self.members:
            getattr(self.members[name], what)(other)

    def _send(self, sender: str, receiver: str, frame: bytes) -> None:
        link = self._links[frozenset((sender, receiver))]
        if link.number:
            self._carry(link, link.number, sender, receiver, frame)

    def _carry(self, link: _Link, number: int, sender: str, receiver: str, frame: bytes) -> None:
        at = max(link.clear[receiver], self._time.now + self._random.choice(_DELAYS))
        link.clear[receiver] = at
        self._time.at(at, partial(self._arrive, link, number, sender, receiver, frame))

    def _arrive(self, link: _Link, number: int, sender: str, receiver: str, frame: bytes) -> None:
        if link.number == number:
            if link.cut:
                link.held.append(partial(self._carry, link, number, sender, receiver, frame))
            else:
                self.members[receiver].received(sender, frame)
