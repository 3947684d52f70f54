"""The links of this gateway to the other members of its site.

In: the configuration, the certificates in the site's folder, and frames for members. Out: members
that join and leave, and their frames, in the event loop. Of two members, the one whose name comes
first in the alphabet dials, so there is one connection for each pair. A link to a member that hangs
ends within 2 s. An absent member is dialled again after 0.1 s, and then less often, up to every 5
s. After a link on which a keep-alive was answered, dialling begins with 0.1 s again.

The other member of a pair *knocks* while there is no link, at once after its start: it connects,
shows its certificate, and gets BYE. A member that hears a knock dials without waiting, at most once
a second. Onceway 0.2.0 refuses a knock, and gets no more for a minute. A knock does not affect a
link that is alive.

A stranger can use only a handshake: there are at most MOST_HANDSHAKES at a time, each takes at most
HANDSHAKE_S, and if there are too many, the oldest one ends. Each problem is logged once, in one
line.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from gateway.config import Config, split_address
from gateway.errors import OncewayError
from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES
from gateway.site.links.kept_list import KeptList
from gateway.site.links.link import (
    OLDEST,
    SILENT,
    VERSION,
    Greeting,
    Link,
    State,
    address_of,
    difference,
)
from gateway.site.links.listening import MOST_HANDSHAKES, is_here, listen
from gateway.site.pki import invitation, renewal
from gateway.site.pki.authority import Membership, Removal, authority_of, membership, name_in
from gateway.site.pki.member_list import Lists
from gateway.site.pki.removed import Removed
from gateway.site.pki.tls import dialling, serving, why
from gateway.site.rules.contact import LEASE_S, PROMISE_S
from gateway.system.dial import connected
from gateway.system.jobs import Job
from gateway.system.logs import about, printable

log = logging.getLogger(__name__)

TICK_S = 0.5
AGAIN_S = 2.0
"""Seconds between two attempts to listen on an address that this machine does not have yet."""
RENEWAL_S = 86_400.0
"""Longest time in seconds for which a renewal may fail before it is a problem."""
HANDSHAKE_S = 10.0
DIAL_S = 5.0
_TCP_S = 4.0
"""Timeout for name lookup and TCP, within DIAL_S."""
MOST_WAIT_S = 5.0
CLOCK_S = 60.0
"""Difference of clocks beyond which it is a problem of the link."""
_SHUTDOWN_S = 2.0
_FIRST_WAIT_S = 0.1
_KNOCK_S = 1.0
"""Seconds after an answered knock in which further knocks of that member are ignored."""
_SLOW_S = 0.5
"""Seconds after which a knock ends an attempt to dial."""
_STALE_S = 0.75
"""Seconds without a byte after which a knock ends a link; keep-alives come each TICK_S."""
_QUIET_S = 60.0
_KEYS = 64


@dataclass(slots=True)
class _Far:
    """Another member.

    heard: by the loop's clock, None: never. since: start of the link, or of its absence. problem:
    why there is no link, or the problem at its start, if known. before: the generation before that
    of `last`. begun: whether `last` is the first link since the member has started. knocked:
    whether the member has knocked, and is to be dialled at once. answered_knock: time of the last
    answered knock. attempt: the current dialling, which a knock may end.
    """

    name: str
    address: str
    since: float
    link: Link | None = None
    heard: float | None = None
    last: Link | None = None
    before: str = ""
    begun: bool = False
    problem: str = ""
    knocked: asyncio.Event = field(default_factory=asyncio.Event)
    answered_knock: float = float("-inf")
    attempt: asyncio.Timeout | None = None


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A row of `onceway site status`. heard_s: seconds since the last received byte; None if there
    was none in this run. until: the end date of the certificate, if known.
    """

    name: str
    address: str
    here: bool  # prose: JSON key
    connected: bool
    since_s: float
    heard_s: float | None
    lag_ms: float | None
    clock_s: float | None
    protocol: int | None
    generation: str | None
    until: str | None
    problem: str | None


class Net:
    """The links of this gateway. joined, link_ended: called with a member's name. received: called
    with a frame of a joined member; a SiteError of it ends the link. agreed: called when the file
    has a newer list of members; then `close` and `start` begin with those. generation: the store's
    generation, for the other members.
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
        self._far: dict[str, _Far] = {}
        self._logged: dict[str, float] = {}
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._saving: set[asyncio.Task[None]] = set()
        """Tasks that `close` waits for."""
        self._listening: socket.socket | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._next_tick = 0.0
        self._closing = False
        folder = config.site_folder
        text = f"{folder}: the certificate of this gateway, or of a member, cannot be renewed"
        self._renewing = Job("site_certificate", text, RENEWAL_S)
        text, save = "the list of removed members", self._spawn_saving
        self._removals = KeptList(folder, "site_removed", text, save, self._may_log)
        text = "the signed list of members"
        self._listing = KeptList(
            folder, "site_members", text, save, self._may_log, self._agreed, mends=True
        )

    @property
    def jobs(self) -> list[Job]:
        """The jobs that renew certificates and keep the lists of members and of removed ones."""
        return [self._renewing, *self._removals.jobs, *self._listing.jobs]

    @property
    def port(self) -> int:
        """Port on which this gateway listens."""
        return cast(int, self._listening.getsockname()[1]) if self._listening else 0

    async def start(self) -> None:
        """Start listening and dialling. An address that this machine does not have yet is waited
        for. Raises OncewayError if there is no certificate, or the address is in use.
        """
        loop, folder = asyncio.get_running_loop(), self._config.site_folder
        self._own = own = membership(folder, self._name)
        self._renews = authority_of(folder) is not None
        if self._renews and renewal.is_due(own.certificate):
            own = renewal.renew_own(folder) or own
        self._removed, self._lists = Removed(folder, own), Lists(folder, own)
        self._removals.use(self._removed)
        self._listing.use(self._lists)
        self._closing = False
        self._far.clear()
        self._use(own)
        self._listening = listen(*self._config.site_bind)
        if absent := self._absent():
            log.error("%s; the rest runs", absent)
        now = loop.time()
        for name, address in self._site.members.items():
            if name != self._name:
                self._far[name] = _Far(name, address, now)
                keep = self._keep_dialling if self._name < name else self._keep_knocking
                self._spawn(keep(self._far[name]))
        self._next_tick = now + TICK_S
        self._tick = loop.call_later(TICK_S, self._look)
        self._spawn(self._keep_accepting())
        if not absent:
            log.info("site %s: listening for members on port %d", own.site, self.port)

    async def close(self) -> None:
        self._closing = True
        if self._tick is not None:
            self._tick.cancel()
        await asyncio.gather(*self._saving, return_exceptions=True)
        tasks = [*self._tasks, *self._handshakes]
        for task in tasks:
            task.cancel()
        for far in self._far.values():
            if far.link is not None:
                far.link.stop()
        await asyncio.gather(*tasks, *self._saving, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()

    def _use(self, own: Membership) -> None:
        """Show this certificate from now on, on new links."""
        folder, self._own = self._config.site_folder, own
        self._serving, self._dialling = serving(folder, own), dialling(folder, own)

    def send(self, member: str, frame: bytes) -> None:
        """Send a frame. It is dropped if there is no link: the caller must expect silence."""
        if len(frame) > FRAME_BYTES:
            raise ValueError(f"a frame of {len(frame)} bytes")
        link = self._far[member].link
        if link is not None:
            link.send(frame)

    def status(self) -> list[dict[str, Any]]:
        """Return the rows of all members, this one first."""
        now = asyncio.get_running_loop().time()
        until = f"{self._own.certificate.not_valid_after_utc:%Y-%m-%d}"
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
            else renewal.problem(self._own.certificate) or self._absent(),
        )
        return [asdict(own), *(asdict(_status(far, now)) for far in self._far.values())]

    def _absent(self) -> str | None:
        """Return why no member can reach this gateway yet, or None."""
        if is_here(self._config.site_bind[0]):
            return None
        where = self._site.bind or "site.bind"
        return f"{where}: this machine does not have that address. The gateway waits for it"

    def has_stopped(self, member: str) -> bool:
        """Whether the last link ended because the member stopped."""
        last = self._far[member].last
        return last is not None and last.stop_reason == ""

    def has_begun(self, member: str) -> bool:
        """Whether the member has started since the previous link."""
        return self._far[member].begun

    def removed_members(self) -> list[str]:
        """Return the names that were removed and are not connected with a newer certificate."""
        up = {name for name, far in self._far.items() if far.link is not None}
        return sorted(self._removed.names() - up)

    # methods that `Link` calls

    def admits(self, link: Link) -> None:
        certificate = link.certificate
        name = name_in(certificate) if certificate is not None else ""
        if link.expected is not None and name != link.expected:
            raise SiteError(f"the address {link.address} answers as {name!r}")
        if name == self._name:
            raise SiteError("it shows this gateway's own name: there is a copy of this machine")
        if name not in self._far:
            raise SiteError(f"{name!r} is not in [site.members] of {self._name}")
        if certificate is None or self._removed.covers(certificate):
            raise SiteError(_GONE)
        if link.expected is None and self._name < name:
            link.knock = True
            self._knocked(self._far[name])
            raise SiteError(f"it is {self._name}{_DIALS}{name}{_HEARD}")

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
            renews=self._renews,
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
            link.differs = (
                f"[site] copies differs: {self._name} has {mine.copies}, {link.member}"
                f" {greeting.copies}. Make it the same at all members"
            )
        elif abs(link.clock_s) > CLOCK_S:
            way = "ahead of" if link.clock_s > 0 else "behind"
            link.differs = (
                f"its clock is {abs(link.clock_s):.0f} s {way} this gateway's: times of readings"
                " differ by that"
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
        far.knocked.clear()
        far.since, far.problem = link.heard, _COPY if copied else ""
        log.info(
            "%s: joined from %s", printable(far.name), link.address, extra=about(member=far.name)
        )
        if link.differs and self._may_log(f"{far.name}: {link.differs[:9]}"):
            log.warning("%s: %s", printable(far.name), link.differs, extra=about(member=far.name))
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
        if link.has_renewed if data else self._renews and not link.has_renewed:
            link.has_renewed = not data
            self._spawn_saving(self._renew(link, data))

    async def _renew(self, link: Link | None, data: bytes = b"") -> None:
        """Renew the certificate of this gateway, or that of the member at the end of a link."""
        folder = self._config.site_folder
        try:
            if link is not None and link.certificate is not None and not data:
                link.renew(await asyncio.to_thread(renewal.renewed, folder, link.certificate))
                self._renewing.succeed()
                return
            if link is None:
                own = await asyncio.to_thread(renewal.renew_own, folder)
            else:
                own = await asyncio.to_thread(renewal.accept, folder, data)
            if own is not None:
                self._use(own)
                log.info(
                    "this gateway's certificate is renewed, until %s",
                    f"{own.certificate.not_valid_after_utc:%Y-%m-%d}",
                )
            self._renewing.succeed()
        except Exception as error:
            self._renewing.fail(error)

    def _keep_certificate(self) -> None:
        """Renew this gateway's certificate when half of its life is over."""
        if not renewal.is_due(self._own.certificate):
            return
        if self._renews:
            if self._may_log("own renewal"):  # a failure is tried again a minute later
                self._spawn_saving(self._renew(None))
            return
        for far in self._far.values():
            if far.link is not None and far.link.renews and not far.link.has_renewed:
                far.link.renew()

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

    # Connections

    async def _keep_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        while (listening := self._listening) is None:
            await asyncio.sleep(AGAIN_S)
            with suppress(OncewayError):
                self._listening = listen(*self._config.site_bind)
        while True:
            try:
                channel, address = await loop.sock_accept(listening)
            except OSError as error:  # for example, too many open files
                self._warn(
                    "accept", f"no connection of a member can be accepted ({error.strerror})"
                )
                await asyncio.sleep(TICK_S)
                continue
            if len(self._handshakes) >= MOST_HANDSHAKES:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
            task = loop.create_task(self._admit(channel, address_of(address)))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _admit(self, channel: socket.socket, address: str) -> None:
        """Accept a connection. Return when its member has joined, or the connection has ended."""
        link = Link(self, None)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: link,
                    channel,
                    ssl=self._serving,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=_SHUTDOWN_S,
                )
                await link.settled
        except (OSError, TimeoutError) as error:
            if link.state is not State.ENDED:
                self._refused(link.member, address, why(error))
        finally:
            if link.state is not State.JOINED:
                link.quit()

    async def _keep_dialling(self, far: _Far) -> None:
        wait = _FIRST_WAIT_S
        while True:
            link = await self._dial(far)
            await link.ended
            if link.may_redial_soon:
                wait = _FIRST_WAIT_S
            try:
                async with asyncio.timeout(wait * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
                    await far.knocked.wait()
            except TimeoutError:
                wait = min(2 * wait, MOST_WAIT_S)
            else:
                wait = _FIRST_WAIT_S

    async def _dial(self, far: _Far) -> Link:
        """Dial once. Return the link after it has joined, or ended."""
        link = Link(self, far.name)
        again = far.knocked.is_set()
        far.knocked.clear()
        try:
            async with asyncio.timeout(DIAL_S) as attempt:
                # the next knock must not end an attempt that follows a knock
                far.attempt = None if again else attempt
                await self._connect(far, link)
        except (OSError, TimeoutError, UnicodeError) as error:
            if not far.knocked.is_set():
                self._refused(far.name, far.address, why(error))
            link.quit()
        except asyncio.CancelledError:
            link.quit()
            raise
        finally:
            far.attempt = None
        return link

    async def _connect(self, far: _Far, link: Link) -> None:
        """Open a connection, and return after the link has joined, or ended."""
        host, port = split_address(far.address)
        await asyncio.get_running_loop().create_connection(
            lambda: link,
            sock=await connected(host, port, _TCP_S),
            ssl=self._dialling,
            server_hostname="",
            ssl_handshake_timeout=DIAL_S,
            ssl_shutdown_timeout=_SHUTDOWN_S,
        )
        await link.settled

    def _knocked(self, far: _Far) -> None:
        """Dial a knocking member at once, if it has no link."""
        now = asyncio.get_running_loop().time()
        late = now - self._next_tick > TICK_S
        if far.link is not None and now - far.link.heard > _STALE_S and not late:
            far.link.end(SILENT)
        if far.link is not None or now - far.answered_knock < _KNOCK_S:
            return
        far.answered_knock = now
        far.knocked.set()
        deadline = far.attempt and far.attempt.when()
        if far.attempt is not None and deadline is not None and deadline - now < DIAL_S - _SLOW_S:
            far.attempt.reschedule(now)  # for example, the machine was off

    async def _keep_knocking(self, far: _Far) -> None:
        wait = 0.0
        while True:
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311 - no secret
            if (link := far.link) is not None:
                await link.ended
                wait = _FIRST_WAIT_S if link.may_redial_soon else MOST_WAIT_S
            elif await self._knock(far):
                wait = min(max(2 * wait, _FIRST_WAIT_S), MOST_WAIT_S)
            else:
                wait = _QUIET_S

    async def _knock(self, far: _Far) -> bool:
        """Knock once. Return False if the member refuses knocks."""
        link = Link(self, far.name, knock=True)
        try:
            async with asyncio.timeout(DIAL_S):
                await self._connect(far, link)
        except (OSError, TimeoutError, UnicodeError):
            return True  # an unreachable member dials later
        finally:
            link.quit()
        if not link.stop_reason or link.stop_reason.endswith(_HEARD):
            return True
        if _DIALS not in link.stop_reason:
            self._refused(far.name, far.address, link.reason)
        return False

    async def _answer(self, link: Link, request: bytes) -> None:
        """Answer a gateway that was invited."""
        address = link.address
        data, text = await asyncio.to_thread(
            invitation.answer, self._config.site_folder, self._site.members, request
        )
        link.answer(data)
        key = f"{address.rpartition(':')[0]} {text[:7]}"  # each refusal begins alike
        self._warn(key, f"an invited gateway at {address}: {printable(text)}")

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        # then this gateway hung itself, and received bytes are not read yet
        late = now - self._next_tick > TICK_S
        self._next_tick = now + TICK_S
        self._tick = loop.call_later(TICK_S, self._look)
        self._removals.look()
        self._spread(None)
        if self._listing.look():
            self._agreed()
        self._keep_certificate()
        set_off = datetime.now(UTC).timestamp() - now
        for far in self._far.values():
            if far.link is not None and abs(set_off - far.link.set_off) > CLOCK_S / 2:
                far.link.end("this gateway's clock was set")  # the next link compares it again
            elif far.link is not None and not late:
                far.link.look(now)

    # Removed members

    def _spread(self, source: Link | None) -> None:
        """Apply news about removed members, and pass them on to the others."""
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
        return self._removed.covers(self._own.certificate)

    # Logging once

    def _refused(self, name: str, address: str, reason: str) -> None:
        """Log a refused connection. name: the peer's, if it is known and proved."""
        far = self._far.get(name)
        if far is None:
            owner = f" of {printable(name)}" if name else ""
            if self._may_log(reason):
                log.warning("a connection%s from %s was refused: %s", owner, address, reason)
            return
        if far.link is None and far.problem != reason:
            far.problem = reason
            log.warning("%s: not joined: %s", printable(name), reason, extra=about(member=name))

    def _warn(self, key: str, text: str) -> None:
        if self._may_log(key):
            log.warning("%s", text)

    def _may_log(self, key: str) -> bool:
        """Whether to log now: not the same line within a minute, and not too many lines in
        total.
        """
        now = asyncio.get_running_loop().time()
        if now - self._logged.get(key, float("-inf")) < _QUIET_S:
            return False
        for old in [old for old, since in self._logged.items() if now - since >= _QUIET_S]:
            del self._logged[old]
        if len(self._logged) >= _KEYS:
            return False
        self._logged[key] = now
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that `close` cancels."""
        self._start_task(work, self._tasks)

    def _spawn_saving(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that `close` waits for."""
        self._start_task(work, self._saving)

    @staticmethod
    def _start_task(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)


_DIALS, _HEARD = " that dials ", ": the knock is heard"
"""Parts of the answer to a knock; the answer of Onceway 0.2.0 contains only the first one."""
_GONE = "it was removed from the site, or its name has a newer certificate"
_COPY = "two gateways that run have its name: stop the one that is a copy"


def _status(far: _Far, now: float) -> MemberStatus:
    link, last = far.link, far.last
    heard = link.heard if link is not None else far.heard
    certificate = last.certificate if last is not None else None
    is_past = link is not None and now - far.since > _QUIET_S
    return MemberStatus(
        far.name,
        far.address,
        here=False,
        connected=link is not None,
        since_s=round(now - far.since, 1),
        heard_s=None if heard is None else round(now - heard, 1),
        lag_ms=None if link is None or link.lag_s is None else round(link.lag_s * 1000, 1),
        clock_s=None if last is None else round(last.clock_s, 1),
        protocol=None if last is None else last.version,
        generation=None if last is None else last.generation,
        until=None if certificate is None else f"{certificate.not_valid_after_utc:%Y-%m-%d}",
        problem=(not is_past and far.problem) or (link is not None and link.differs) or None,
    )
