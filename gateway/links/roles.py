"""The two ends of the reliable link: `GatewayLink` welcomes, `DeviceLink` greets (README.md,
Handshake). Sans-IO.

The device's end in Python is the peer in tests and in the rig; the one that runs on boards is
`firmware/src/ow_link.c`.
"""

from dataclasses import replace
from random import Random, SystemRandom

from gateway.links.frames import MAX_IN_FLIGHT, MTU, FrameDecoder, FrameError, Time
from gateway.links.handshake import Greeter, Hello, Welcome, Who
from gateway.links.reliable import Event, Refused, ReliableLink, Session

WHO_INTERVAL = 0.2
HELLO_WAIT_MIN = 0.25
HELLO_WAIT_MAX = 2.0
HELLO_JITTER = 0.25
REFUSED_WAIT = 10.0


class GatewayLink(ReliableLink):
    """The gateway's end. baud: of the line, for timing only; None when bytes take no time."""

    def __init__(self, greeter: Greeter, baud: int | None = None) -> None:
        super().__init__(baud)
        self._greeter = greeter
        self._answered: tuple[Hello, Welcome] | None = None  # how the present session began
        self._boot: int | None = None
        self._who_at = float("-inf")

    def open(self, now: float) -> None:
        """The port has been opened: ask who is there."""
        self._ended(now)

    def lose(self, reason: str) -> list[Event]:
        """The port is gone, and the session with it."""
        self._drop(reason)
        self._outgoing.clear()
        self._decoder = FrameDecoder(self.statistics)
        events, self._events = self._events, []
        return events

    def _on_handshake(self, kind: int, payload: bytes, now: float) -> None:
        if kind != Hello.KIND:
            raise FrameError("a handshake that no gateway expects")
        hello = Hello.from_payload(payload)
        if self.session is not None and self._answered is not None and self._answered[0] == hello:
            self._put(
                replace(self._answered[1], utc=int(self._greeter.utc())).to_bytes(), now, lead=True
            )
            return
        rebooted = self._boot not in (None, hello.boot)
        self._boot = hello.boot
        self.statistics.reboots += rebooted
        self._drop("the device was rebooted" if rebooted else "the device greets anew")
        welcome = self._greeter.answer(hello)
        self._put(welcome.to_bytes(), now, lead=True)
        if welcome.refused:
            self._events.append(Refused(hello.name))
            return
        self._answered = hello, welcome
        self._start(welcome.seed, hello.mtu, hello.window, hello, welcome)

    def _on_time(self, session: Session, frame: Time, now: float) -> None:
        if frame.utc is not None:
            raise FrameError("a gateway asks nobody for the time")
        if utc := self._greeter.utc():
            self._put(Time(utc).to_bytes(session.seed), now)

    def _on_stray(self, now: float) -> None:
        if now - self._who_at >= WHO_INTERVAL:
            self._ended(now)

    def _ended(self, now: float) -> None:
        self._who_at = now
        self._put(Who(self._greeter.gateway_boot).to_bytes(), now, lead=True)


class DeviceLink(ReliableLink):
    """The device's end. It greets as soon as `tick` is called, and again whenever its session has
    ended.

    boot: starts of the device so far. incarnation: 0 when the device has none yet; after a
    handshake it holds the one given. next_sequence: to be kept up to date by the application. mtu,
    window: the sizes of its buffers, for both directions.
    """

    def __init__(
        self,
        name: str,
        *,
        boot: int,
        incarnation: int = 0,
        next_sequence: int = 1,
        mtu: int = MTU,
        window: int = MAX_IN_FLIGHT,
        power_on: bool = False,
        baud: int | None = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(baud)
        self.name = name
        self.boot = boot
        self.incarnation = incarnation
        self.next_sequence = next_sequence
        self._mtu = mtu
        self._window = window
        self._power_on = power_on
        self._random = random or SystemRandom()
        self._attempt = 0
        self._wait = HELLO_WAIT_MIN
        self._greet_at = float("-inf")
        self._greeting: Hello | None = None
        self._greet(self._greet_at)

    def tick(self, now: float) -> list[Event]:
        if self._greeting is not None and now >= self._greet_at:
            self._put(self._greeting.to_bytes(), now, lead=True)
            self._greet_at = now + self._wait * self._random.uniform(
                1 - HELLO_JITTER, 1 + HELLO_JITTER
            )
            self._wait = min(2 * self._wait, HELLO_WAIT_MAX)
        return super().tick(now)

    @property
    def deadline(self) -> float | None:
        return super().deadline if self._greeting is None else self._greet_at

    def _greet(self, at: float) -> None:
        """Send a new HELLO at the time `at`, and again until it is answered."""
        self._greeting = Hello(
            self.boot,
            self._attempt,
            self.incarnation,
            self.next_sequence,
            self._mtu,
            self._window,
            self.name,
            self._power_on,
        )
        self._attempt = (self._attempt + 1) % 256
        self._greet_at = at
        self._wait = HELLO_WAIT_MIN

    def _on_handshake(self, kind: int, payload: bytes, now: float) -> None:
        if kind == Welcome.KIND:
            self._on_welcome(Welcome.from_payload(payload), now)
        elif kind == Who.KIND:
            Who.from_payload(payload)
            if self._greeting is None:
                self._drop("the gateway has no session")
                self._greet(now)
            else:
                self._greet_at = now
                self._wait = HELLO_WAIT_MIN
        else:
            raise FrameError("a handshake that no device expects")

    def _on_welcome(self, welcome: Welcome, now: float) -> None:
        if self._greeting is None:
            self._on_late_welcome(welcome, now)
            return
        hello = self._greeting
        if (welcome.boot, welcome.attempt) != (hello.boot, hello.attempt):
            return
        if welcome.refused:
            self._events.append(Refused(self.name))
            self._greet(now + REFUSED_WAIT)
            return
        if not welcome.incarnation or hello.incarnation not in (0, welcome.incarnation):
            return  # the answer to a HELLO that the gateway misread
        self._greeting = None
        self._welcome = welcome
        self.incarnation = welcome.incarnation
        self._start(
            welcome.seed,
            min(self._mtu, welcome.mtu),
            min(self._window, welcome.window),
            hello,
            welcome,
        )

    def _on_late_welcome(self, welcome: Welcome, now: float) -> None:
        if welcome.seed != self._welcome.seed and (welcome.boot, welcome.attempt) == (
            self._welcome.boot,
            self._welcome.attempt,
        ):
            self._drop("the gateway has a newer session")
            self._greet(now)

    def _on_time(self, session: Session, frame: Time, now: float) -> None:
        """This device does not ask."""

    def _on_stray(self, now: float) -> None:
        """A device that greets hears the end of the session before: nothing to do."""

    def _ended(self, now: float) -> None:
        self._greet(now)
