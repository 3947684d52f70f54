"""The links of this gateway to the other members of its site.

In: the configuration, the certificates in the site's folder, and frames for members. Out: members
that join and leave, and their frames, in the event loop. A link to a member that hangs ends within
2 s. Each problem is logged once, in one line.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gateway.config import Config
from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.links.certificate import OwnCertificate
from gateway.site.links.dialling import DIALS, HEARD, Dialling
from gateway.site.links.far_member import FarMember, MemberStatus, missing, status
from gateway.site.links.kept_list import KeptList
from gateway.site.links.link import OLDEST, VERSION, Greeting, Link, difference
from gateway.site.links.listening import Listener
from gateway.site.links.seldom import Seldom
from gateway.site.pki import invitation, renewal
from gateway.site.pki.authority import Removal, name_in
from gateway.site.pki.member_list import Lists
from gateway.site.pki.removed import Removed
from gateway.site.rules.contacts import LEASE_S, PROMISE_S
from gateway.system.jobs import Job
from gateway.system.logs import about, printable

log = logging.getLogger(__name__)

TICK_S = 0.5
CLOCK_S = 60.0
"""Difference between two members' clocks, in seconds, above which it is reported as a problem."""


class Net:
    """The links of this gateway to the other members. joined, link_ended: called with a member's
    name. received: called with a frame of a joined member; if it raises SiteError, the link ends.
    agreed: called when the signed list of members in the site's folder has become newer, by a
    message of a member or by a command. After that call, `close` and `start` apply the list.
    generation: the store's generation, for the other members.
    """

    def __init__(
        self,
        config: Config,
        generation: str,
        joined: Callable[[str], None],
        link_ended: Callable[[str], None],
        received: Callable[[str, bytes], None],
        agreed: Callable[[], None] = lambda: None,
    ) -> None:
        if config.site is None:
            raise ValueError("there is no [site]")
        self._config = config
        self._site = config.site
        self._name = config.gateway.name
        self._generation = generation
        self._joined, self._link_ended, self._received = joined, link_ended, received
        self._agreed = agreed
        self._far: dict[str, FarMember] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._saving: set[asyncio.Task[None]] = set()
        """Tasks that may write files. `close` waits for them."""
        self._tick: asyncio.TimerHandle | None = None
        self._next_tick = 0.0
        self._closing = False
        self._unlisted: dict[str, float] = {}
        """Gateways with a certificate of the site that are not in [site.members], with the time of
        the last attempt to join.
        """
        folder, save = config.site_folder, self._spawn_saving
        self._seldom, seldom = Seldom(), Seldom()  # strangers use up their own keys only
        self._certificate = OwnCertificate(folder, self._name, save, seldom)
        self._listener = Listener(config, self, self._certificate, self._refused, seldom)
        self._dialling = Dialling(self, self._certificate, self._refused)
        text = "the list of removed members"
        self._removals = KeptList(folder, "site_removed", text, save, seldom)
        text = "the signed list of members"
        self._listing = KeptList(
            folder, "site_members", text, save, seldom, self._agreed, mends=True
        )

    @property
    def jobs(self) -> list[Job]:
        """The jobs that renew certificates, and that read and write the lists of members and of
        removed members.
        """
        return [self._certificate.job, *self._removals.jobs, *self._listing.jobs]

    @property
    def port(self) -> int:
        """Port on which this gateway listens."""
        return self._listener.port

    async def start(self) -> None:
        """Start listening and dialling. If this machine does not have the configured address yet,
        listening starts as soon as the address exists. Raises OncewayError if there is no
        certificate, or the address is in use.
        """
        loop, folder = asyncio.get_running_loop(), self._config.site_folder
        own = self._certificate.read()
        self._removed, self._lists = Removed(folder, own), Lists(folder, own)
        self._removals.use(self._removed)
        self._listing.use(self._lists)
        self._closing = False
        self._far.clear()
        self._unlisted.clear()
        self._listener.open()
        if absent := self._listener.absent():
            log.error("%s; the rest of the gateway runs", absent)
        now = loop.time()
        for name, address in self._site.members.items():
            if name != self._name:
                self._far[name] = far = FarMember(name, address, now)
                dialling = self._dialling
                keep = dialling.keep_dialling if self._name < name else dialling.keep_knocking
                self._start_task(keep(far), self._tasks)
        self._next_tick = now + TICK_S
        self._tick = loop.call_later(TICK_S, self._look)
        self._start_task(self._listener.keep_accepting(), self._tasks)
        if not absent:
            log.info("site %s: listening for members on port %d", own.site, self.port)

    async def close(self) -> None:
        self._closing = True
        if self._tick is not None:
            self._tick.cancel()
        await asyncio.gather(*self._saving, return_exceptions=True)
        tasks = [*self._tasks, *self._listener.handshakes]
        for task in tasks:
            task.cancel()
        for far in self._far.values():
            if far.link is not None:
                far.link.stop()
        await asyncio.gather(*tasks, *self._saving, return_exceptions=True)
        self._listener.close()

    def send(self, member: str, frame: bytes) -> None:
        """Send a frame to a member. Without a link, the frame is dropped. Raises ValueError if it
        has more than FRAME_BYTES.
        """
        if len(frame) > FRAME_BYTES:
            raise ValueError(f"a frame of {len(frame)} bytes; at most {FRAME_BYTES} are allowed")
        link = self._far[member].link
        if link is not None:
            link.send(frame)

    def status(self) -> list[dict[str, Any]]:
        """Return the rows of `onceway site status` for all members, this gateway first."""
        now = asyncio.get_running_loop().time()
        certificate = self._certificate.own.certificate
        until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        own = MemberStatus(
            self._name,
            self._site.members[self._name],
            here=True,
            connected=True,
            since_s=0.0,
            heard_s=0.0,
            lag_ms=0.0,
            clock_s=0.0,
            protocol=VERSION,
            generation=self._generation,
            until=until,
            problem=_GONE
            if self._is_removed
            else renewal.problem(certificate)
            or self._listener.absent()
            or missing(self._unlisted, now),
        )
        return [asdict(own), *(asdict(status(far, now)) for far in self._far.values())]

    def has_stopped(self, member: str) -> bool:
        """Whether the last link ended because the member stopped."""
        last = self._far[member].last
        return last is not None and last.stop_reason == ""

    def has_begun(self, member: str) -> bool:
        """Whether the latest link to a member is the first one since that member started."""
        return self._far[member].begun

    def removed_members(self) -> list[str]:
        """Return the names of removed members, without members that are connected: such a member
        has joined again, with a newer certificate.
        """
        up = {name for name, far in self._far.items() if far.link is not None}
        return sorted(self._removed.names() - up)

    # methods that `Link` calls

    def admits(self, link: Link) -> None:
        certificate = link.certificate
        name = name_in(certificate) if certificate is not None else ""
        if link.expected is not None and name != link.expected:
            raise SiteError(f"the gateway at {link.address} is {name!r}, not {link.expected!r}")
        if name == self._name:
            raise SiteError(
                "its certificate has this gateway's own name: a copy of this machine is running"
            )
        if name not in self._far:
            if certificate is not None and not self._removed.covers(certificate):
                self._unlisted[name] = asyncio.get_running_loop().time()
            raise SiteError(f"{name!r} is not in [site.members] of {self._name}")
        if certificate is None or self._removed.covers(certificate):
            raise SiteError(_GONE)
        if link.expected is None and self._name < name:
            link.knock = True
            self._dialling.knocked(self._far[name], self._is_late())
            raise SiteError(f"it is {self._name}{DIALS}{name}{HEARD}")
        if link.expected is not None and not link.knock:
            self._dialling.answers(self._far[name])

    def greeting(self) -> Greeting:
        return Greeting(
            version=VERSION,
            oldest=OLDEST,
            generation=self._generation,
            clock=datetime.now(UTC).timestamp(),
            removed=self._removed.to_json(),
            members=sorted(self._site.members),
            copies=self._site.copies,
            lease=LEASE_S,
            promise=PROMISE_S,
            renews=self._certificate.renews,
            agreed=self._lists.newest,
        )

    def compare(self, link: Link, greeting: Greeting) -> None:
        if greeting.agreed is not None and self._lists.heard(greeting.agreed):
            self._listing.keep()
        mine = self.greeting()
        if (text := difference(mine, greeting, self._name, link.member)) is not None:
            if link.expected is None and greeting.agreed != self._lists.newest:
                link.greet()  # with our list, which the member takes over
            raise SiteError(text)
        if greeting.copies not in (None, mine.copies):
            link.differs.append(
                f"[site] copies differs: {self._name} has {mine.copies}, {link.member}"
                f" {greeting.copies}. Make it the same at all members"
            )
        if abs(link.clock_s) > CLOCK_S:
            way = "ahead of" if link.clock_s > 0 else "behind"
            link.differs.append(
                f"its clock is {abs(link.clock_s):.0f} s {way} this gateway's: times of readings"
                " from both gateways differ by this much"
            )

    def joined(self, link: Link) -> None:
        far = self._far[link.member]
        copied = False
        if far.link is not None:
            # each run of a gateway has its own generation, so no generation repeats
            copied = link.generation == far.before != ""
            far.link.end(_COPY if copied else "it has dialled again", bye=copied)
        far.begun = far.last is None or far.last.generation != link.generation
        if far.last is not None and far.begun:
            far.before = far.last.generation
        far.link = far.last = link
        far.knocked = False
        far.wake.clear()
        far.since, far.problem = link.heard, _COPY if copied else ""
        log.info(
            "%s: joined from %s", printable(far.name), link.address, extra=about(member=far.name)
        )
        for text in link.differs:
            if self._seldom.allows(f"{far.name}: {text[:9]}"):
                log.warning("%s: %s", printable(far.name), text, extra=about(member=far.name))
        for other in self._far.values():
            if other.link is None:
                self._dialling.wake(other)
        self._joined(far.name)

    def frame_arrived(self, link: Link, frame: bytes) -> None:
        self._received(link.member, frame)

    def removed(self, link: Link, removals: Sequence[Removal]) -> None:
        if self._removed.heard(removals):
            self._removals.keep()
            self._spread(link)

    def asked(self, link: Link, request: bytes) -> None:
        self._spawn_saving(self._answer(link, request))

    def renews(self, link: Link, data: bytes) -> None:
        self._certificate.received(link, data)

    def over(self, link: Link, joined: bool) -> None:
        if not joined:
            if not link.knock:
                self._refused(link.member, link.address, link.reason)
            return
        far = self._far[link.member]
        far.link, far.heard, far.problem = None, link.heard, link.reason
        far.since = asyncio.get_running_loop().time()
        if not self._closing:
            log.warning(
                "%s: lost: %s", printable(far.name), link.reason, extra=about(member=far.name)
            )
        self._link_ended(far.name)

    async def _answer(self, link: Link, request: bytes) -> None:
        address = link.address
        data, text = await asyncio.to_thread(
            invitation.answer, self._config.site_folder, self._site.members, request
        )
        link.answer(data)
        key = f"{address.rpartition(':')[0]} {text[:7]}"  # each refusal begins alike
        if self._seldom.allows(key):
            log.warning("an invited gateway at %s: %s", address, printable(text))

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = self._is_late()
        self._next_tick = now + TICK_S
        self._tick = loop.call_later(TICK_S, self._look)
        self._removals.look()
        self._spread(None)
        if self._listing.look():
            self._agreed()
        self._certificate.look([far.link for far in self._far.values() if far.link is not None])
        set_off = datetime.now(UTC).timestamp() - now
        for far in self._far.values():
            if far.link is not None and abs(set_off - far.link.set_off) > CLOCK_S / 2:
                far.link.end("this gateway's clock was set")  # the next link compares it again
            elif far.link is not None and not late:
                far.link.look(now)

    def _is_late(self) -> bool:
        """Whether this gateway itself hung, so that received bytes may still wait to be read."""
        return asyncio.get_running_loop().time() - self._next_tick > TICK_S

    # Removed members

    def _spread(self, source: Link | None) -> None:
        """Apply news about removed members, and send the news to the other members. source: the
        link on which the news arrived; None if it was read from this gateway's file.
        """
        news = self._removed.news()
        if not news:
            return
        if any(item.name == self._name for item in news) and self._is_removed:
            log.error("the other members refuse this gateway: %s", _GONE)
        if source is not None and source.certificate and self._removed.covers(source.certificate):
            source.end(_GONE, bye=True)
        for far in self._far.values():
            link = far.link
            if link is None or link.certificate is None:
                continue
            if link is not source:
                link.tell_removed(news)
            if self._removed.covers(link.certificate):
                link.end(_GONE, bye=True)

    @property
    def _is_removed(self) -> bool:
        return self._removed.covers(self._certificate.own.certificate)

    # Logging once

    def _refused(self, name: str, address: str, reason: str) -> None:
        """Log a refused connection. name: name of the peer if the peer has proved it, else
        empty.
        """
        far = self._far.get(name)
        if far is None:
            owner = f" of {printable(name)}" if name else ""
            if self._seldom.allows(reason):
                log.warning("a connection%s from %s was refused: %s", owner, address, reason)
            return
        if far.link is None and far.problem != reason:
            far.problem = reason
            log.warning("%s: not joined: %s", printable(name), reason, extra=about(member=name))

    def _spawn_saving(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that `close` waits for."""
        self._start_task(work, self._saving)

    @staticmethod
    def _start_task(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)


_GONE = "it was removed from the site, or its name has a newer certificate"
_COPY = "two running gateways have its name: stop the copy"
