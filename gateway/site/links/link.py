"""A TLS connection between two members, from its handshake to its end.

In: bytes, and frames to send. Out, to its `Owner`: a peer that both sides have accepted, frames,
and the end with its reason. The dialling side greets first. The other side accepts the greeting and
then answers. The first ALIVE of the dialling side confirms that it has accepted the answer: from
then on both are joined.

  dialled    GREETING →              ALIVE → joined
  called                ← GREETING           joined

A peer without a certificate may only send one JOIN. A *knock* is a connection of a member that is
waiting to be dialled: the other side sends BYE as soon as it knows the certificate, and dials.
"""

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Annotated, Any, Protocol, cast

from cryptography import x509
from pydantic import BaseModel, Field

from gateway.site.errors import SiteError
from gateway.site.framing import FRAME_BYTES, Frames, Kind, pack, pack_number, unpack_number
from gateway.site.pki.authority import Removal, name_in
from gateway.site.pki.invitation import MOST_REQUEST
from gateway.site.pki.member_list import MemberList
from gateway.site.pki.removed import from_values, read
from gateway.site.pki.tls import why
from gateway.site.rules.contacts import LEASE_S, PROMISE_S
from gateway.site.rules.messages import MEMBERS
from gateway.site.strict import parse
from gateway.system.logs import printable

VERSION = 1
"""Version of the protocol between members."""
OLDEST = 1
"""Oldest version that this gateway still speaks."""
MOST_GREETING = 128 * 1024
MOST_UNSENT = 4 * FRAME_BYTES
"""Largest number of bytes that wait for a member to read; beyond that, its link ends."""
SILENT_S = 1.4
"""Seconds of silence after which a link ends. The link is checked every TICK_S seconds, so a member
that hangs counts as silent within 2 s.
"""
SILENT = "it is silent"
UNREAD_S = 10.0
"""Longest time, in seconds, that a keep-alive may stay without an echo."""
SHUTDOWN_S = 2.0
"""Longest time, in seconds, for closing the TLS connection."""
_SHORT = 300
"""Largest number of characters of a peer's text that are logged."""


def address_of(peer: Sequence[Any] | None) -> str:
    """Return an address as HOST:PORT. peer: the address as a socket returns it."""
    if not peer:
        return "nowhere"
    host = str(peer[0]).removeprefix("::ffff:")
    return f"[{host}]:{peer[1]}" if ":" in host else f"{host}:{peer[1]}"


Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class Greeting(BaseModel):
    """The first message of a member. Later versions may add fields."""

    version: Annotated[int, Field(ge=0, le=0xFFFF)]
    oldest: Annotated[int, Field(ge=0, le=0xFFFF)]
    generation: Annotated[str, Field(pattern="^[0-9a-f]{0,64}$")]
    """Generation word of the member's store. Each start changes this word (`last_generation`)."""
    clock: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
    """Clock of the member, UTC in seconds since 1970."""
    removed: list[Any]
    members: Annotated[list[str], Field(max_length=MEMBERS)] | None = None
    """Names in the member's [site.members]. Onceway 0.2.0 sends neither this field nor the fields
    after it.
    """
    copies: Annotated[int, Field(ge=0, le=0xFFFF)] | None = None
    lease: Seconds | None = None
    """LEASE_S of the member; None counts as the LEASE_S of this gateway."""
    promise: Seconds | None = None
    """PROMISE_S of the member; None counts as the PROMISE_S of this gateway."""
    renews: bool = False
    """Whether the member holds the site's authority, and renews certificates."""
    agreed: MemberList | None = None
    """The signed list of members that the member uses."""


def difference(mine: Greeting, theirs: Greeting, me: str, member: str) -> str | None:
    """Return the reason, as a sentence, why two members must not decide about clients together;
    None if they may. me, member: their names.
    """
    if min(mine.version, theirs.version) < max(mine.oldest, theirs.oldest):
        old = me if mine.version < theirs.version else member
        return (
            f"the site's protocol differs: {me} speaks version {mine.version}, {member}"
            f" {theirs.version}. Update Onceway at {old}"
        )
    if theirs.members is not None and mine.members is not None:
        one, other = set(mine.members), set(theirs.members)
        only = [
            f"only {name} has {', '.join(map(printable, sorted(names)))}"
            for name, names in sorted(((me, one - other), (member, other - one)))
            if names
        ]
        if only:
            return f"[site.members] differs: {'; '.join(only)}. Make it the same at all members"
    lease, promise = theirs.lease or LEASE_S, theirs.promise or PROMISE_S
    if lease >= PROMISE_S or promise <= LEASE_S:
        return "its leases do not fit this gateway's leases: update Onceway at all members"
    return None


class State(Enum):
    GUEST = auto()
    """The peer has no certificate."""
    GREETING = auto()
    CONFIRMING = auto()
    """The peer is accepted, but has not confirmed yet that it accepts this gateway."""
    JOINED = auto()
    ENDED = auto()


NEXT: dict[State, frozenset[State]] = {
    State.GREETING: frozenset({State.GUEST, State.CONFIRMING, State.JOINED, State.ENDED}),
    State.GUEST: frozenset({State.ENDED}),
    State.CONFIRMING: frozenset({State.JOINED, State.ENDED}),
    State.JOINED: frozenset({State.ENDED}),
    State.ENDED: frozenset(),
}


class Owner(Protocol):
    """The interface of the code that owns a link. If a method raises SiteError, the link ends."""

    def admits(self, link: "Link") -> None:
        """Raise SiteError if the peer's certificate is not a member's."""

    def greeting(self) -> Greeting: ...

    def compare(self, link: "Link", greeting: Greeting) -> None:
        """Raise SiteError if the peer's configuration differs in a way that is not allowed."""

    def joined(self, link: "Link") -> None: ...

    def frame_arrived(self, link: "Link", frame: bytes) -> None: ...

    def removed(self, link: "Link", removals: Sequence[Removal]) -> None: ...

    def asked(self, link: "Link", request: bytes) -> None:
        """Handle a request to join. The owner calls `Link.answer` later."""

    def renews(self, link: "Link", data: bytes) -> None:
        """Handle a member's message: a request to renew the member's certificate (`data` is empty),
        or the answer to this gateway's request.
        """

    def over(self, link: "Link", joined: bool) -> None:
        """Note that the link has ended, for the reason in `link.reason`. joined: whether the link
        had joined.
        """


class Link(asyncio.Protocol):
    """A connection between this gateway and a peer. expected: name of the member that this gateway
    has dialled; None if the peer has dialled. knock: whether the connection is only a knock.
    """

    def __init__(self, owner: Owner, expected: str | None, *, knock: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.expected = expected
        self.knock = knock
        """Whether the connection is a knock, of this gateway or of the peer (set by the owner)."""
        self.member = expected or ""
        """Name of the peer; empty while unknown."""
        self.certificate: x509.Certificate | None = None
        self.address = "nowhere"
        self.generation = ""
        self.version = 0
        self.renews = False
        """Whether the peer has the site's authority, and so renews certificates."""
        self.has_renewed = False
        """Whether this gateway has requested a certificate over this link and waits for it, or has
        issued one to the peer.
        """
        self.differs: list[str] = []
        """Differences between the two members that do not prevent a link, in words."""
        self.clock_s = 0.0
        """Seconds by which the peer's clock was ahead of this gateway's clock at the greeting."""
        self.set_off = 0.0
        """UTC of this gateway minus the loop's clock at the greeting, in seconds."""
        self.lag_s: float | None = None
        """Round-trip time of the last keep-alive in seconds."""
        self.state = State.GREETING
        self.answered = False
        """Whether the peer has echoed a keep-alive that was sent after joining."""
        self.stop_reason: str | None = None
        """The reason in the peer's BYE; empty if the BYE only says that the peer stops; None if no
        BYE came.
        """
        self.reason = ""
        """Reason of the end, in words."""
        self.settled: asyncio.Future[None] = loop.create_future()
        """Done when the link has joined, or ended."""
        self.ended: asyncio.Future[None] = loop.create_future()
        self.began = self.heard = loop.time()
        """Time at which the link was created, and time of the last received bytes, by the loop's
        clock.
        """
        self.round_trip_s = 0.0
        """Seconds from this gateway's greeting to the peer's; 0.0 if the peer has dialled."""
        self._greeting_sent = 0.0
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._frames = Frames(MOST_GREETING)
        self._sent: deque[tuple[int, float]] = deque()
        """Keep-alives without an echo: number and time."""
        self._alive = 0

    @property
    def may_redial_soon(self) -> bool:
        """Whether the next link may be tried at once: the peer has answered on this link, and has
        not refused this gateway.
        """
        return self.answered and not self.stop_reason

    def _become(self, state: State) -> None:
        if state not in NEXT[self.state]:
            raise RuntimeError(f"a link cannot go from {self.state} to {state}")
        self.state = state

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.begin(cast(asyncio.Transport, transport))

    def begin(self, transport: asyncio.Transport) -> None:
        """Begin the link on a connection whose TLS handshake is complete."""
        if self._transport is not None or self.state is State.ENDED:
            return
        self._transport = transport
        self.address = address_of(transport.get_extra_info("peername"))
        channel: ssl.SSLObject = transport.get_extra_info("ssl_object")
        shown = channel.getpeercert(binary_form=True)
        if shown is None:
            self._become(State.GUEST)
            self._frames.most = MOST_REQUEST
        else:
            self.certificate = x509.load_der_x509_certificate(shown)
            self.member = self.expected or name_in(self.certificate)
            try:
                self._owner.admits(self)
            except SiteError as error:
                self._say_removed(self._owner.greeting().removed)  # the peer may be one of them
                self.end(error.what, bye=True)
                return
            if self.expected is not None and not self.knock:
                self.greet()
        self._read()

    def send(self, frame: bytes) -> None:
        """Send a frame to a joined member. A member that does not read loses the link."""
        if self.state is State.JOINED:
            self._write(pack(Kind.FRAME, frame))
            self._bound()

    def tell_removed(self, removals: Sequence[Removal]) -> None:
        if self.state is State.JOINED:
            self._say_removed([item.to_json() for item in removals])
            self._bound()

    def renew(self, data: bytes = b"") -> None:
        """Ask a member for a renewed certificate, or answer such a request. data: the renewed
        certificate for an answer, empty for a request.
        """
        self.has_renewed = True
        if self.state is State.JOINED:
            self._write(pack(Kind.JOIN, data))

    def answer(self, data: bytes) -> None:
        """Answer a JOIN, and close the connection."""
        if self.state is State.GUEST:
            self._write(pack(Kind.JOIN, data))
            self._become(State.ENDED)
            self._release()
            self._close()

    def look(self, now: float) -> None:
        """Send a keep-alive, or end a dead link. Called every TICK_S seconds."""
        if self.state is not State.JOINED:
            return
        if silence_s(self, now) > SILENT_S:
            self.end(SILENT)
        elif self._sent and now - self._sent[0][1] > UNREAD_S:
            self.end("it does not read what this gateway sends")
        else:
            self._say_alive()
            self._bound()

    def end(self, reason: str, *, bye: bool = False) -> None:
        """End the link. bye: whether to tell the peer."""
        if self.state is State.ENDED:
            return
        if bye:
            self._say_bye(reason)
        elif self._transport is not None:
            self._transport.abort()
        self._over(reason)

    def stop(self) -> None:
        """End the link, because this gateway stops."""
        if self.state is not State.ENDED:
            self._say_bye("")
            self._over("this gateway stops")

    def quit(self) -> None:
        """End the link without telling the peer or the owner."""
        if self.state is not State.ENDED:
            self._become(State.ENDED)
            self._release()
            if self._transport is not None:
                self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        if self.state is State.ENDED:
            return
        self._frames.feed(data)
        if self._transport is not None:
            self._read()

    def connection_lost(self, error: Exception | None) -> None:
        self._over(why(error))

    def _read(self) -> None:
        try:
            for kind, body in self._frames:
                self._take(kind, body)
                if self.state is State.ENDED:
                    return
        except SiteError as error:
            self.end(error.what, bye=True)

    def _take(self, kind: Kind, body: bytes) -> None:
        match self.state, kind:
            case _, Kind.BYE:
                self.stop_reason = text = printable(body[:_SHORT].decode(errors="replace"))
                self.end(f"it says of this gateway: {text}" if text else "it has stopped")
            case State.GUEST, Kind.JOIN:
                self._frames.most = 0  # accept no further frame
                self._owner.asked(self, body)
            case State.GREETING, Kind.GREETING:
                self._greeted(body)
            case State.CONFIRMING, Kind.ALIVE:
                self._echo(body)
                self._join()
            case State.JOINED, Kind.ALIVE:
                self._echo(body)
            case State.JOINED, Kind.ECHO:
                self._echoed(unpack_number(body))
            case State.JOINED, Kind.JOIN:
                self._owner.renews(self, body)
            case State.JOINED, Kind.FRAME:
                self._owner.frame_arrived(self, body)
            case State.GREETING | State.CONFIRMING | State.JOINED, Kind.REMOVED:
                self._owner.removed(self, read(body))
            case State.GUEST, _:
                raise SiteError("it shows no certificate")
            case _:
                raise SiteError(f"a frame of kind {kind.name} where none is expected")

    def greet(self) -> None:
        self._greeting_sent = self._loop.time()
        self._write(pack(Kind.GREETING, self._owner.greeting().model_dump_json().encode()))

    def _greeted(self, body: bytes) -> None:
        greeting = parse(Greeting, body, MOST_GREETING)
        self.version = min(VERSION, greeting.version)
        now = datetime.now(UTC).timestamp()
        self.clock_s = greeting.clock - now
        self.set_off = now - self._loop.time()
        self.generation, self.renews = greeting.generation, greeting.renews
        self._owner.removed(self, from_values(greeting.removed))
        if self.state is State.ENDED:  # the peer's frame may have ended the link
            return
        self._owner.compare(self, greeting)
        if self.expected is None:
            self.greet()
            self._become(State.CONFIRMING)
        else:
            self.round_trip_s = self._loop.time() - self._greeting_sent
            self._say_alive()
            self._join()

    def _join(self) -> None:
        self._owner.admits(self)  # it may have been removed since the handshake
        self._become(State.JOINED)
        self._frames.most = FRAME_BYTES
        if not self.settled.done():
            self.settled.set_result(None)
        self._owner.joined(self)

    def _say_alive(self) -> None:
        self._alive += 1
        self._sent.append((self._alive, self._loop.time()))
        self._write(pack_number(Kind.ALIVE, self._alive))

    def _echo(self, body: bytes) -> None:
        self._write(pack_number(Kind.ECHO, unpack_number(body)))
        self._bound()

    def _echoed(self, number: int) -> None:
        while self._sent and self._sent[0][0] <= number:
            sent, since = self._sent.popleft()
            self.answered |= sent > 1  # the first one belongs to joining
            self.lag_s = self._loop.time() - since

    def _say_removed(self, values: list[Any]) -> None:
        self._write(pack(Kind.REMOVED, json.dumps(values).encode()))

    def _say_bye(self, text: str) -> None:
        self._write(pack(Kind.BYE, text[:_SHORT].encode()))
        self._close()

    def _bound(self) -> None:
        """End the link if too many bytes wait in its transport. The link ends only after the caller
        has finished its work.
        """
        if self._transport and self._transport.get_write_buffer_size() > MOST_UNSENT:
            self._loop.call_soon(self.end, "it does not read what this gateway sends")

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _over(self, reason: str) -> None:
        if self.state is State.ENDED:
            return
        joined = self.state is State.JOINED
        self._become(State.ENDED)
        self.reason = reason
        self._release()
        self._owner.over(self, joined)

    def _release(self) -> None:
        for future in (self.settled, self.ended):
            if not future.done():
                future.set_result(None)


def silence_s(link: Link, now: float) -> float:
    """Return the seconds since the last bytes from the peer. Until the peer has echoed a
    keep-alive, subtract one round trip, because the first bytes of the peer need that time.
    """
    return now - link.heard - (link.round_trip_s if link.lag_s is None else 0.0)
