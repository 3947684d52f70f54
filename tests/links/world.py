"""Two peers of the reliable link in memory, on simulated time, and a line with all kinds of faults.

In: actions (write, advance, reboot, damage), from a state machine or from a random schedule. Out: a
ledger of the bytes that each session has sent and received. After every step, the received bytes
must be a prefix of those that were sent in the same session. A session is identified by its boot,
its attempt and the check of its frames; each end calculates these by itself.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from gateway.links import cobs
from gateway.links.frames import Check, Crc16, handshake_from_body
from gateway.links.greeter import Greeter
from gateway.links.reliable import Event, Received, Session, SessionEnded, SessionStarted
from gateway.links.roles import DeviceLink, GatewayLink

Id = tuple[int, int, Check]

KEY = bytes(range(0x40, 0x50))
"""Key of the device, in worlds with keys."""


class Collision(Exception):
    """A damaged frame has a valid CRC by chance, as one of 65,536 damaged frames without a key
    does. The schedule then proves nothing about the link.
    """


class Stream:
    """Sent and received bytes of one session, in one direction."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.received = bytearray()

    def check(self) -> None:
        assert self.sent.startswith(self.received), (
            f"{bytes(self.received[-40:])!r} is not what was sent"
        )


class Ledger:
    """All streams of a world, by session. up: from device to gateway. down: from gateway to
    device.
    """

    def __init__(self, on_start: Callable[[Id], None]) -> None:
        self._on_start = on_start
        self.up: dict[Id, Stream] = {}
        self.down: dict[Id, Stream] = {}
        self.at_gateway: list[Id] = []
        self.at_device: list[Id] = []
        self.reasons: list[str] = []
        self.checks: dict[Check, Id] = {}

    def welcomed(self, known: Id) -> None:
        """Record that a session has begun at the device."""
        assert known not in self.at_device
        self.at_device.append(known)
        self._open(known)

    def started(self, known: Id) -> None:
        """Record that a session has begun at the gateway. With keys, it must have begun at the
        device before.
        """
        assert known in self.at_device or isinstance(known[2], Crc16)
        assert known not in self.at_gateway
        self.at_gateway.append(known)
        self._open(known)

    def _open(self, known: Id) -> None:
        if known in self.up:
            return
        self._on_start(known)
        self.up[known] = Stream()
        self.down[known] = Stream()
        if self.checks.setdefault(known[2], known) != known:
            assert isinstance(known[2], Crc16), "a session key comes again"
            raise Collision


class DeviceEnd(Protocol):
    """A device in the world: the Python twin, or the C code of boards."""

    known: Id | None
    """Identity of the device's session, or None."""

    def receive(self, data: bytes, now: float) -> None: ...
    def tick(self, now: float) -> None: ...
    def write(self, data: bytes, now: float) -> None: ...
    def greet(self, now: float) -> None: ...
    def take(self, now: float) -> bytes: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def repeated(self) -> int: ...


MakeDevice = Callable[[Ledger, Random, int, int, int | None, bytes | None], DeviceEnd]
"""Maker of a device. Its arguments: ledger, random, boot, incarnation, baud, key."""


class PythonDevice:
    """`DeviceLink` with small buffers, as a board has them."""

    def __init__(
        self,
        ledger: Ledger,
        random: Random,
        boot: int,
        incarnation: int,
        baud: int | None,
        key: bytes | None,
    ) -> None:
        mtu, window = random.choice((16, 56, 240)), random.randint(1, 4)
        self.link = DeviceLink(
            "sensor-1",
            boot=boot,
            incarnation=incarnation,
            mtu=mtu,
            window=window,
            key=key,
            baud=baud,
            random=random,
        )
        self.known: Id | None = None
        self._ledger = ledger

    def receive(self, data: bytes, now: float) -> None:
        self._handle(self.link.receive(data, now))

    def tick(self, now: float) -> None:
        self._handle(self.link.tick(now))

    def write(self, data: bytes, now: float) -> None:
        if self.known is not None and self.link.session is not None:
            self._ledger.up[self.known].sent += data
            self.link.write(self.link.session, data, now)

    def greet(self, now: float) -> None:
        if self.link.session is not None:
            self.link.abort(self.link.session, now)
            self.known = None

    def take(self, now: float) -> bytes:
        return self.link.take()

    @property
    def deadline(self) -> float | None:
        return self.link.deadline

    @property
    def incarnation(self) -> int:
        return self.link.incarnation

    @property
    def repeated(self) -> int:
        return self.link.statistics.retransmissions

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case SessionStarted(session, hello):
                    self.known = hello.boot, hello.attempt, session.check
                    self._ledger.welcomed(self.known)
                case Received(_, data):
                    assert self.known is not None
                    self._ledger.down[self.known].received += data
                case SessionEnded():
                    self.known = None


class GatewayEnd:
    """`GatewayLink` and the application above it."""

    def __init__(
        self, ledger: Ledger, gateway_boot: int, now: float, baud: int | None, key: bytes | None
    ) -> None:
        self.link = GatewayLink(Greeter(gateway_boot, key=lambda name: key), baud)
        self.link.open(now)
        self._ledger = ledger
        self._ids: dict[int, Id] = {}
        self._over: set[int] = set()
        # keeps the sessions alive: the id() of a freed object may be used again
        self._alive: list[Session] = []

    @property
    def known(self) -> Id | None:
        session = self.link.session
        return None if session is None or session.closing else self._ids[id(session)]

    @property
    def deadline(self) -> float | None:
        return self.link.deadline

    def receive(self, data: bytes, now: float) -> None:
        self._handle(self.link.receive(data, now))

    def tick(self, now: float) -> None:
        self._handle(self.link.tick(now))

    def write(self, data: bytes, now: float) -> None:
        known = self.known
        if known is not None and self.link.session is not None:
            self._ledger.down[known].sent += data
            self.link.write(self.link.session, data, now)

    def close(self, now: float, *, at_once: bool) -> None:
        session = self.link.session
        if session is not None:
            self._over.add(id(session))
            if at_once:
                self.link.abort(session, now)
            else:
                self._handle(self.link.close(session, now))

    def pause(self) -> None:
        if self.link.session is not None:
            self.link.session.receiving.paused = True

    def resume(self, now: float) -> None:
        if self.link.session is not None:
            self._handle(self.link.resume(self.link.session, now))

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case SessionStarted(session, hello, welcome):
                    assert welcome.incarnation
                    known = hello.boot, hello.attempt, session.check
                    self._alive.append(session)
                    self._ids[id(session)] = known
                    self._ledger.started(known)
                case Received(session, data):
                    assert id(session) not in self._over
                    self._ledger.up[self._ids[id(session)]].received += data
                case SessionEnded(session, reason):
                    assert id(session) not in self._over
                    self._over.add(id(session))
                    self._ledger.reasons.append(reason)


class Channel:
    """One direction of the line. Bytes keep their order, but may be damaged, lost, inserted or
    delayed.
    """

    def __init__(self, random: Random, *, latency: float, byte_time: float, piece: int) -> None:
        self.random = random
        self.noise = 0.0
        self.stalled_until = 0.0
        self.damaged = 0
        self._latency = latency
        self._byte_time = byte_time
        self._piece = piece
        self._free_at = 0.0
        self._in_flight: deque[tuple[float, bytes]] = deque()
        self._genuine: set[bytes] = set()
        self.history = bytearray()
        self._partial_sent = b""
        self._partial_delivered = b""

    def send(self, data: bytes, now: float) -> None:
        *frames, self._partial_sent = (self._partial_sent + data).split(b"\0")
        self._genuine.update(frames)
        self.history += data
        if self.noise:
            data = self._damage(data)
        while data:
            piece, data = data[: self._piece], data[self._piece :]
            self._free_at = (
                max(self._free_at, now + self._latency, self.stalled_until)
                + len(piece) * self._byte_time
            )
            self._in_flight.append((self._free_at, piece))

    def inject(self, data: bytes, now: float) -> None:
        """Put bytes on the line that no end has sent."""
        self.damaged += 1
        self._in_flight.append((max(self._free_at, now), data))

    def cut(self) -> None:
        """Lose the last part of the bytes in flight, as when their sender loses power."""
        for _ in range(self.random.randint(0, len(self._in_flight))):
            self._in_flight.pop()
        self._partial_sent = b""

    def flush(self) -> None:
        """Lose the first part of the bytes in flight, as when their receiver loses power."""
        for _ in range(self.random.randint(0, len(self._in_flight))):
            self._in_flight.popleft()

    @property
    def next_at(self) -> float | None:
        return self._in_flight[0][0] if self._in_flight else None

    def due(self, now: float, known: Id | None) -> bytes:
        """Return the next piece of bytes if it has arrived by `now`, otherwise b"". known: the
        session at the receiver.
        """
        if not self._in_flight or self._in_flight[0][0] > now:
            return b""
        data = self._in_flight.popleft()[1]
        self._watch(data, known)
        return data

    def _watch(self, data: bytes, known: Id | None) -> None:
        *frames, self._partial_delivered = (self._partial_delivered + data).split(b"\0")
        for frame in frames:
            if frame and frame not in self._genuine:
                try:
                    body = cobs.decode(frame)
                except cobs.CobsError:
                    continue
                if len(body) > 2 and (
                    handshake_from_body(body) is not None
                    or (known is not None and known[2].open(body) is not None)
                ):
                    raise Collision

    def _damage(self, data: bytes) -> bytes:
        random = self.random
        damaged = bytearray()
        for byte in data:
            if random.random() >= self.noise:
                damaged.append(byte)
                continue
            self.damaged += 1
            match random.randrange(6):
                case 0:
                    pass
                case 1:
                    damaged.append(byte ^ 1 << random.randrange(8))
                case 2:
                    damaged.append(random.randrange(256))
                case 3:
                    damaged += bytes((byte, random.randrange(256)))
                case 4:
                    damaged += random.randbytes(random.randrange(20))
                case _:
                    damaged.append(byte)
                    # at most four acknowledgements: 3-bit numbers cannot show that more are repeats
                    damaged += damaged[-random.randrange(1, 25) :]
        return bytes(damaged)


class World:
    """A gateway's port, a board, and the line between them."""

    def __init__(
        self,
        random: Random,
        make_device: MakeDevice = PythonDevice,
        *,
        baud: int | None = 115200,
        latency: float = 0.001,
        key: bytes | None = KEY,
    ) -> None:
        self.random = random
        self.now = 0.0
        self.ledger = Ledger(self._session_started)
        self.boot = 1
        self.gateway_boot = random.randint(1, 60000)
        byte_time = 10 / baud if baud else 0.0
        piece = random.choice((1, 16, 64, 64))
        self.up = Channel(random, latency=latency, byte_time=byte_time, piece=piece)
        self.down = Channel(random, latency=latency, byte_time=byte_time, piece=piece)
        self._marks: dict[Id, tuple[int, int]] = {}
        self._make_device = make_device
        self._baud = baud
        self._key = key
        self.device = make_device(self.ledger, random, self.boot, 0, baud, key)
        self.gateway = GatewayEnd(self.ledger, self.gateway_boot, self.now, baud, key)

    def advance(self, duration: float) -> None:
        """Let time pass, one event after the other."""
        end = self.now + duration
        for _ in range(200_000):
            if data := self.device.take(self.now):
                self.up.send(data, self.now)
            if data := self.gateway.link.take():
                self.down.send(data, self.now)
            moments = (
                self.up.next_at,
                self.down.next_at,
                self.device.deadline,
                self.gateway.deadline,
            )
            upcoming = min((moment for moment in moments if moment is not None), default=end)
            if upcoming > end:
                break
            self.now = max(self.now, upcoming)
            if data := self.up.due(self.now, self.gateway.known):
                self.gateway.receive(data, self.now)
            if data := self.down.due(self.now, self.device.known):
                self.device.receive(data, self.now)
            self.device.tick(self.now)
            self.gateway.tick(self.now)
            if upcoming == end and all(moment is None or moment > end for moment in moments):
                break
        else:
            raise AssertionError("the peers never come to rest")
        self.now = end
        self.check()

    def check(self) -> None:
        for streams in (self.ledger.up, self.ledger.down):
            for stream in streams.values():
                stream.check()

    def reboot_device(self, *, keep_incarnation: bool = True) -> None:
        self.up.cut()
        self.down.flush()
        self.boot += 1
        self.device = self._make_device(
            self.ledger,
            self.random,
            self.boot,
            self.device.incarnation if keep_incarnation else 0,
            self._baud,
            self._key,
        )

    def reboot_gateway(self) -> None:
        self.down.cut()
        self.up.flush()
        self.gateway_boot += 1
        self.gateway = GatewayEnd(self.ledger, self.gateway_boot, self.now, self._baud, self._key)

    def _session_started(self, known: Id) -> None:
        self._marks[known] = len(self.up.history), len(self.down.history)

    def replay(self, *, up: bool) -> None:
        """Deliver again some bytes that were sent before the receiver's session, as from a buffer
        on the line.
        """
        channel, known = (self.up, self.gateway.known) if up else (self.down, self.device.known)
        end = len(channel.history) if known is None else self._marks[known][0 if up else 1]
        start = self.random.randint(0, end)
        channel.inject(b"\0" + bytes(channel.history[start : min(start + 400, end)]), self.now)

    def set_noise(self, rate: float) -> None:
        self.up.noise = self.down.noise = rate

    def settle(self) -> None:
        """Heal the line. Check that both ends find each other and complete an exchange."""
        self.set_noise(0.0)
        self.gateway.resume(self.now)
        self.advance(max(self.up.stalled_until, self.down.stalled_until, self.now) - self.now)
        for _ in range(3):
            # An end that is still in an old session learns of the new one when it sends, after 8
            # expiries at the latest.
            self.device.write(b"ping", self.now)
            self.gateway.write(b"pong", self.now)
            self.advance(12.0)
        assert self.gateway.known is not None
        assert self.gateway.known == self.device.known
        up, down = self.ledger.up[self.gateway.known], self.ledger.down[self.gateway.known]
        self.device.write(self.random.randbytes(700), self.now)
        self.gateway.write(self.random.randbytes(700), self.now)
        self.advance(60.0)
        assert up.received == up.sent
        assert down.received == down.sent
        self.check()
