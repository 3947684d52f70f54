"""The gateway's end of the turn link (README.md), for all boards of one radio. Sans-IO.

In: frames from the radio (`receive`), MQTT for a board (`write`), the time. Out: events, and frames
for the radio, each with the latest time at which it may begin (`take`). `now` is a monotonic clock
in seconds.

A session ends if its board begins another session, or the broker closes it. The link has no
timeout: the broker's Keep Alive takes its place.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gateway.links.frames import FrameError
from gateway.links.greeter import draw_incarnation
from gateway.links.keys import draw_nonce
from gateway.links.lora.airtime import LONGEST
from gateway.links.lora.frames import (
    ANSWER,
    COUNTERS,
    DOWN,
    GREETING,
    LOW,
    OVERHEAD,
    TURN,
    UP,
    Header,
    Hello,
    SessionCipher,
    Welcome,
    who_frame,
)
from gateway.links.lora.packing import Answer, Turn, outstanding, pack_answer, read_turn, split

WINDOW = 1.0
"""Seconds after a TURN within which its answer may begin."""

OFFERS = 4
COPIES = 8
"""Largest number of answers to one TURN, repetitions included. For one HELLO, this many WELCOMEs
are sent without delay; further ones follow at most once a minute.
"""

STALE = 8
"""Number of WELCOMEs that a board gets without delay, although its HELLOs may be recordings.
Further WELCOMEs of this kind are sent at most once a minute.
"""

A_MINUTE = 1 / 60

BESIDE = 8
"""Largest number of bytes of an answer besides its packets: success, time, and the flag for more
packets.
"""


class Bucket:
    """A token bucket. size: largest number of tokens. rate: new tokens per second."""

    def __init__(self, size: int, rate: float) -> None:
        self._size, self._rate = size, rate
        self._tokens, self._at = float(size), float("-inf")

    def take(self, now: float) -> bool:
        """Take a token. Return whether one was available."""
        if self._at > float("-inf"):
            self._tokens = min(self._tokens + (now - self._at) * self._rate, self._size)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Others(NamedTuple):
    """The other gateways of the site, which receive the same boards. gateways: number of gateways,
    this gateway included. rank: position of this gateway among them, from 0. holds: returns whether
    this gateway has the MQTT session of a board, by the board's number.
    """

    gateways: int
    rank: int
    holds: Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A frame for the radio. until: latest time at which the frame may begin; later, its board does
    not listen any more.
    """

    frame: bytes
    until: float


class Session:
    """A session of the link with one board, which is one MQTT Network Connection."""

    def __init__(self, cipher: SessionCipher, mtu: int) -> None:
        self.cipher = cipher
        self.mtu = mtu
        self.counter = -1
        """Counter of the last TURN, -1 before the first."""
        self.frame = b""
        """The last TURN, as received."""
        self.turn = Turn(())
        self.answer: bytes | None = None
        """The encrypted answer to the last TURN; None until it is ready."""
        self.heard = float("-inf")
        self.due = False
        """Whether the last TURN, or its newest copy, is still unanswered."""
        self.copies = 0
        self.pending: list[bytes] = []
        """Complete packets for the board that no answer contains yet."""
        self.rest = b""
        self.closing = False

    @property
    def unsent(self) -> int:
        """Number of bytes that were written, but are not yet part of an answer."""
        return sum(map(len, self.pending)) + len(self.rest)


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """Event: board and gateway have proved their key to each other. incarnation: the valid
    incarnation, which the gateway has assigned if the HELLO has none.
    """

    session: Session
    hello: Hello
    incarnation: int


@dataclass(frozen=True, slots=True)
class Received:
    """Event: complete packets of a session, in order. The broker's answers go to `write`."""

    session: Session
    data: bytes


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """Event: the session has ended although this side did not close it. The Network Connection is
    gone.
    """

    session: Session
    reason: str


Event = SessionStarted | Received | SessionEnded


@dataclass(slots=True)
class _Offer:
    """A WELCOME that offers a session. The first TURN in this session begins it."""

    hello: Hello
    nonce: bytes
    incarnation: int
    cipher: SessionCipher
    answers: Bucket = field(default_factory=lambda: Bucket(COPIES, A_MINUTE))


@dataclass(slots=True)
class _Device:
    """The state of one board: its key, its session and the sessions that were offered to it."""

    key: bytes
    session: Session | None = None
    offers: dict[bytes, _Offer] = field(default_factory=dict)
    newest: Hello | None = None
    """HELLO of the last session that the board has begun, with the incarnation of that session."""
    stale: Bucket = field(default_factory=lambda: Bucket(STALE, A_MINUTE))
    stray: bytes = b""
    """The last TURN that belonged to no session; emptied when a session begins, or a TURN of a
    session arrives.
    """
    strays: int = 0
    """Number of consecutive times that `stray` was received."""
    asked: Bucket = field(default_factory=lambda: Bucket(1, A_MINUTE))
    greeting: bytes = b""
    """The last HELLO of the board; empty once a TURN has followed."""
    elsewhere: bool = False
    """Whether the board has a session at another gateway. It has none here, but continues to send
    new TURNs, so another gateway must answer them.
    """


class TurnLink:
    """The gateway's end of the turn link. network: network number of this site. key: returns the
    key of a board by its number, or None to refuse the board. utc: returns seconds since 1970, 0
    while unknown. airtime: returns the airtime of a frame, in seconds, by its length in bytes.
    incarnation: returns a number for a board that has none. nonce: returns eight random bytes.
    cipher: creates a cipher for a session key. longest: largest frame that the radio sends, in
    bytes. patience: number of times that a TURN of an unknown session is received before the board
    gets a WHO; larger at gateways that did not have the board's last session. others: other
    gateways that receive the same boards, or None.
    """

    def __init__(
        self,
        network: int,
        key: Callable[[int], bytes | None],
        *,
        utc: Callable[[], float] = lambda: 0.0,
        airtime: Callable[[int], float] = lambda length: 0.0,
        incarnation: Callable[[], int] = draw_incarnation,
        nonce: Callable[[], bytes] = draw_nonce,
        cipher: Callable[[bytes], SessionCipher] = SessionCipher,
        longest: int = LONGEST,
        patience: int = 2,
        others: Others | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Number of frames by outcome."""
        self.result = ""
        """Outcome of the last received frame, such as `turns` or `forged`."""
        self._network = network
        self._key = key
        self._utc = utc
        self._airtime = airtime
        self._incarnation = incarnation
        self._nonce = nonce
        self._cipher = cipher
        self._mtu = longest - OVERHEAD
        self._patience = patience
        self._others = others
        self._devices: dict[int, _Device] = {}
        self._outgoing: list[Outgoing] = []
        self._events: list[Event] = []

    def receive(self, frame: bytes, now: float) -> list[Event]:
        """Handle a received frame, and return the events. now: time of the frame's end. Any station
        may have sent the frame, so its contents are checked.
        """
        try:
            self.result = self._on_frame(Header.from_frame(frame), frame, now)
        except FrameError:
            self.result = "malformed"
        self.counts[self.result] += 1
        events, self._events = self._events, []
        return events

    def write(self, session: Session, data: bytes) -> None:
        """Queue MQTT packets for a board. Answers to its last TURN may be written only after their
        commit. The size of the queue is `session.unsent`; the caller bounds it. Raises ValueError
        for a packet longer than the board accepts (Maximum Packet Size in its CONNECT).
        """
        packets, session.rest = split(session.rest + data)
        if any(len(packet) > session.mtu - BESIDE for packet in packets):
            raise ValueError(f"a packet of more than {session.mtu - BESIDE} bytes")
        session.pending += packets

    def close(self, session: Session) -> None:
        """End the Network Connection once answers have carried all written bytes. No `SessionEnded`
        follows.
        """
        session.closing = True

    def take(self, now: float) -> list[Outgoing]:
        """Return the frames to send now."""
        for number, device in self._devices.items():
            session = device.session
            if session is not None and session.due and now <= session.heard + WINDOW:
                if session.answer is None and _complete(session):
                    session.answer = self._seal(number, session)
                if session.answer is not None:
                    session.due = False
                    self._put(session.answer, session.heard)
                    self.counts["answers"] += 1
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def _put(self, frame: bytes, heard: float) -> None:
        self._outgoing.append(Outgoing(frame, heard + WINDOW))

    def _on_frame(self, header: Header, frame: bytes, now: float) -> str:
        """Handle a frame. Return its outcome: the word under which it is counted."""
        if header.network != self._network:
            return "foreign"
        if header.type not in (TURN, GREETING):
            return "of another gateway"
        device = self._device(header.device)
        if device is None:
            return "of a stranger"
        if header.type == GREETING:
            return self._on_hello(device, Hello.from_frame(frame), now)
        return self._on_turn(device, header, frame, now)

    def _device(self, number: int) -> _Device | None:
        """Return a board with its current key; None if it has no key. If the key has changed or was
        revoked, the board's session ends.
        """
        key, device = self._key(number), self._devices.get(number)
        if device is not None and device.key != key:
            self._end(device, "its key is no longer valid")
            del self._devices[number]
            device = None
        if key is None:
            return None
        return device or self._devices.setdefault(number, _Device(key))

    def _end(self, device: _Device, reason: str) -> None:
        session, device.session = device.session, None
        if session is not None and not session.closing:
            self._events.append(SessionEnded(session, reason))

    # --- greetings ---

    def _on_hello(self, device: _Device, hello: Hello, now: float) -> str:
        if not hello.proves(device.key):
            return "forged"
        known = hello.to_bytes()
        unanswered, device.greeting = device.greeting not in (b"", known), known
        if not self._has_it(device, hello.device) and not self._steps_in(hello, unanswered):
            return "left to another gateway"
        offer = device.offers.get(known)
        if not _newer(hello, device.newest) and not device.stale.take(now):
            return "replayed"
        if offer is None:
            nonce = self._nonce()
            incarnation = hello.incarnation or self._incarnation()
            cipher = self._cipher(hello.session(device.key, nonce))
            offer = device.offers[known] = _Offer(hello, nonce, incarnation, cipher)
            while len(device.offers) > OFFERS:
                del device.offers[next(iter(device.offers))]
        if not offer.answers.take(now):
            return "replayed"
        fields = offer.nonce, offer.incarnation, self._mtu, int(self._utc()) & 0xFFFF_FFFF
        welcome = Welcome(hello.network, hello.device, *fields).signed(device.key, hello)
        self._put(welcome.to_bytes(), now)
        return "greetings"

    def _has_it(self, device: _Device, number: int) -> bool:
        """Whether the board's last session was at this gateway, as far as this gateway knows. True
        if the site has no other gateways.
        """
        if self._others is None:
            return True
        session = device.session
        open_here = session is not None and not session.closing
        return not device.elsewhere and (open_here or self._others.holds(number))

    def _steps_in(self, hello: Hello, unanswered: bool) -> bool:
        """Whether this gateway answers the HELLO of a board whose session is at another gateway. It
        does so if no gateway has answered the board's previous HELLO, and if this attempt belongs
        to this gateway: the gateways of a site share the attempts of a board, by `rank`.
        """
        others = self._others
        return others is not None and unanswered and hello.attempt % others.gateways == others.rank

    def _begin(self, device: _Device, offer: _Offer) -> Session:
        hello, before = offer.hello, device.newest
        rebooted = before is not None and before.boot != hello.boot
        self._end(device, "the device was rebooted" if rebooted else "the device greets again")
        device.newest, device.stray = replace(hello, incarnation=offer.incarnation), b""
        device.offers.clear()
        session = device.session = Session(offer.cipher, min(hello.mtu, self._mtu))
        self._events.append(SessionStarted(session, hello, offer.incarnation))
        return session

    # --- turns ---

    def _on_turn(self, device: _Device, header: Header, frame: bytes, now: float) -> str:
        session, device.greeting = device.session, b""
        if session is not None and frame == session.frame:
            return self._on_copy(session, now)
        content = None
        if session is not None and session.counter + 1 < COUNTERS:
            if header.low == (session.counter + 1) & LOW:
                content = session.cipher.open(frame, UP, session.counter + 1)
            over = session.closing and not session.pending
            if content is not None and (session.answer is None or over):
                content = session = None  # handled as if there were no session
        if content is None and header.low == 0:
            session, content = self._taken_up(device, frame)
        if content is None or session is None:
            return self._on_stray(device, header.device, frame, now)
        turn = read_turn(content)
        device.elsewhere, device.stray = False, b""
        session.counter += 1
        session.frame, session.turn, session.answer = frame, turn, None
        session.heard, session.due, session.copies = now, True, 1
        if not session.closing:
            self._events.append(Received(session, b"".join(turn.packets)))
        return "turns"

    def _taken_up(self, device: _Device, frame: bytes) -> tuple[Session | None, bytes | None]:
        """Return the session that this frame begins, and the frame's content; None and None if the
        frame begins no session.
        """
        for offer in device.offers.values():
            content = offer.cipher.open(frame, UP, 0)
            if content is not None:
                return self._begin(device, offer), content
        return None, None

    def _on_copy(self, session: Session, now: float) -> str:
        """Handle a repeated TURN. The board may not have received the answer, so answer again, up
        to COPIES answers in all. The limit is for third parties, who may repeat a TURN endlessly.
        Return the outcome.
        """
        if session.copies == COPIES:
            return "replayed"
        session.copies += 1
        session.heard, session.due = now, True
        return "copies"

    def _on_stray(self, device: _Device, number: int, frame: bytes, now: float) -> str:
        session = device.session
        device.elsewhere |= device.stray not in (b"", frame)
        device.strays = device.strays + 1 if device.stray == frame else 1
        device.stray = frame
        if session is not None and not session.closing:
            return "forged or old"
        if device.strays >= self._patience_with(device, number) and device.asked.take(now):
            self._put(who_frame(self._network, number, device.key, frame), now)
        return "of no session"

    def _patience_with(self, device: _Device, number: int) -> int:
        """Return how often the same TURN must be received here, without a session, before the board
        gets a WHO. The number is lowest at the gateway that had the board's last session. At the
        other gateways, the number grows with their rank.
        """
        if self._others is None or self._has_it(device, number):
            return self._patience
        return self._patience + 2 * (self._others.rank + 1)

    def _seal(self, number: int, session: Session) -> bytes:
        """Return the encrypted answer to the last TURN, with as many of the queued packets as
        fit.
        """
        turn = session.turn
        owed = outstanding(turn)
        session.pending.sort(key=lambda packet: not owed.answered_by(packet))
        utc = self._utc() if turn.asks_time else 0.0
        count, content = len(session.pending), b""
        while True:
            packets = tuple(session.pending[:count])
            more = count < len(session.pending)
            moment = utc + self._airtime(session.mtu + OVERHEAD) if utc else None
            content = pack_answer(Answer(packets, moment, more), turn)
            if len(content) <= session.mtu or not count:
                break
            count -= 1
        if moment is not None:
            moment = utc + self._airtime(len(content) + OVERHEAD)
            content = pack_answer(Answer(packets, moment, more), turn)
        del session.pending[:count]
        header = Header(self._network, number, ANSWER, session.counter & LOW)
        return session.cipher.seal(header, DOWN, session.counter, content)


def _newer(hello: Hello, known: Hello | None) -> bool:
    """Whether a HELLO was certainly made after the known one. If not, it may be a recording that a
    third party repeats. It may also be new, because the board or the gateway has lost its memory.
    """
    return (
        known is not None
        and hello.incarnation == known.incarnation
        and (hello.boot, hello.attempt) > (known.boot, known.attempt)
    )


def _complete(session: Session) -> bool:
    """Whether the answer to the last TURN can be sent: all expected packets are queued, or the
    session is closing.
    """
    return session.closing or outstanding(session.turn).by(session.pending)
