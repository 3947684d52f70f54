"""The two ends of the reliable link: `GatewayLink` answers a HELLO, `DeviceLink` sends it
(FORMAT.md, Handshake). Sans-IO.

The device's end in Python is the peer in tests and in the rig; boards run `firmware/src/ow_link.c`.
"""

from dataclasses import replace
from random import Random, SystemRandom

from gateway.links.frames import MAX_IN_FLIGHT, MTU, Check, FrameDecoder, FrameError, Time
from gateway.links.greeter import Answer, Greeter
from gateway.links.handshake import (
    KEYED,
    PLAIN,
    Hello,
    KeyedWelcome,
    Welcome,
    Who,
    read_welcome,
)
from gateway.links.keys import NO_KEY, NONCE_SIZE
from gateway.links.reliable import Event, Refused, ReliableLink, Session, Unheard

WHO_INTERVAL = 0.2
OFFER_PATIENCE = 1.0
"""Seconds after a WELCOME during which damaged frames, and frames of an earlier session, cause no
WHO.
"""

OFFER_LIFE = 10.0
"""Seconds after a WELCOME within which the offered session may begin."""

UNHEARD_AFTER = 6
"""Number of consecutive HELLOs of one start, without any other intact frame between them, after
which the device counts as unable to hear WELCOME. HELLOs of different starts are not added up: a
board that its watchdog resets has no time to answer.
"""

HELLO_WAIT_MIN = 0.25
HELLO_WAIT_MAX = 2.0
HELLO_JITTER = 0.25
REFUSED_WAIT = 10.0


class GatewayLink(ReliableLink):
    """The gateway's end of a link. baud: rate of the line, for timing only; None if bytes take no
    time.
    """

    patient = True

    def __init__(self, greeter: Greeter, baud: int | None = None) -> None:
        super().__init__(baud)
        self._greeter = greeter
        self._answered: Answer | None = None  # of the current session
        self._offered: Answer | None = None  # a session begins with its first valid frame
        self._offered_at = float("-inf")
        self._boot: int | None = None
        self._versions: tuple[int, ...] = (PLAIN, KEYED)  # versions that the peer may use
        self._who_at = float("-inf")
        self._greetings = 0
        """Number of consecutive HELLOs that were answered by a WELCOME."""
        self._frames_then = 0
        """Value of `statistics.frames_received` at the last HELLO."""
        self.greeting: Hello | None = None
        """The last HELLO that was answered by a WELCOME. Perhaps no session has followed."""

    def open(self, now: float) -> None:
        """Ask the board for a HELLO after the port has been opened."""
        self._ended(now)

    def lose(self, reason: str) -> list[Event]:
        """End the session, because the port is gone, and return the events."""
        self._drop(reason)
        self._offered = self.greeting = None
        self._versions = (PLAIN, KEYED)
        self._outgoing.clear()
        self._decoder = FrameDecoder(self.statistics)
        events, self._events = self._events, []
        return events

    def _on_handshake(self, kind: int, payload: bytes, now: float) -> None:
        if kind != Hello.KIND:
            raise FrameError("a handshake that no gateway expects")
        hello = Hello.from_payload(payload)
        answer = self._known_answer(hello) or self._greeter.answer(hello)
        guarded = self.session is not None and self._answered and self._answered.proved
        if guarded and not answer.proved and answer.refusal is None:
            return  # a proved session blocks offers without proof
        self._put(answer.to_bytes(int(self._greeter.utc())), now, lead=True)
        if answer.refusal is not None:
            self._events.append(Refused(hello.name, answer.refusal))
            self._greetings = 0
            return
        if self._is_unheard(hello):
            self._events.append(Unheard(hello.name))
        if answer is not self._answered:
            self._offered, self._offered_at = answer, now
            if answer.key is None:
                self._begin(answer)

    def _is_unheard(self, hello: Hello) -> bool:
        """Count a HELLO that gets a WELCOME. Return whether the device seems unable to hear
        WELCOME.
        """
        frames = self.statistics.frames_received
        again = self.greeting is not None and self.greeting.boot == hello.boot
        alone = again and frames == self._frames_then + 1
        self._frames_then, self.greeting = frames, hello
        self._greetings = self._greetings + 1 if alone else 1
        return self._greetings >= UNHEARD_AFTER

    def _known_answer(self, hello: Hello) -> Answer | None:
        """Return the answer that this HELLO has already got; None for a new HELLO."""
        if self.session is not None and self._answered and self._answered.hello == hello:
            return self._answered
        return self._offered if self._offered and self._offered.hello == hello else None

    def _first_of_next(self, body: bytes, now: float) -> bytes | None:
        """Begin the offered session if `body` is its first frame. Only an owner of the key can make
        this frame, so a recorded HELLO alone does not end the present session.
        """
        answer = self._offered
        if answer is None or answer.check is None or now - self._offered_at > OFFER_LIFE:
            return None
        content = answer.check.open(body)
        if content is None:
            return None
        self._begin(answer)
        return content

    def _begin(self, answer: Answer) -> None:
        """Begin an offered session, and end the previous one. Call this when the first frame in the
        session arrives, or at once if there is no key to prove.
        """
        assert answer.check is not None  # noqa: S101 - for the type checker
        hello = answer.hello
        rebooted = self._boot not in (None, hello.boot)
        self._boot = hello.boot
        self.statistics.reboots += rebooted
        self._drop("the device was rebooted" if rebooted else "the device greets again")
        self._answered, self._offered = answer, None
        self._versions = (hello.version,)
        sizes = hello.mtu, hello.window
        self._start(answer.check, sizes, hello, answer.welcome, proved=answer.proved)

    def _on_time(self, session: Session, frame: Time, now: float) -> None:
        if frame.utc is not None:
            raise FrameError("a gateway does not ask for the time")
        if utc := self._greeter.utc():
            self._put(Time(utc).to_bytes(session.check), now)

    def _on_stray(self, now: float) -> None:
        offered = self._offered is not None and now - self._offered_at < OFFER_PATIENCE
        if not offered and now - self._who_at >= WHO_INTERVAL:
            self._ended(now)

    def _ended(self, now: float) -> None:
        self._who_at = now
        for version in self._versions:
            boot = self._greeter.gateway_boot if version == PLAIN else None
            self._put(Who(boot).to_bytes(), now, lead=True)


class DeviceLink(ReliableLink):
    """The device's end of a link. It sends a HELLO as soon as `tick` is called, and again whenever
    its session has ended. boot: number of the device's starts so far. incarnation: 0 if the device
    has none; a handshake sets it to the incarnation in the WELCOME. next_sequence: the next
    publication's sequence; the application updates it. mtu, window: largest payload in bytes and
    number of frames, for both directions. key: None for a HELLO of version 1.
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
        key: bytes | None = None,
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
        self._key = key
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
        if self._key is not None:
            nonce = self._random.randbytes(NONCE_SIZE)
            self._greeting = replace(self._greeting, nonce=nonce).signed(self._key)
        self._attempt = (self._attempt + 1) % 256
        self._greet_at = at
        self._wait = HELLO_WAIT_MIN

    def _on_handshake(self, kind: int, payload: bytes, now: float) -> None:
        if kind == Welcome.KIND:
            welcome = read_welcome(payload)
            if isinstance(welcome, KeyedWelcome) == (self._key is not None):
                self._on_welcome(welcome, now)
        elif kind == Who.KIND:
            request = Who.from_payload(payload)
            if (request.gateway_boot is None) != (self._key is not None):
                return  # meant for boards of the other version
            if self._greeting is None:
                self._drop("the gateway has no session")
                self._greet(now)
            else:
                self._greet_at = now
                self._wait = HELLO_WAIT_MIN
        else:
            raise FrameError("a handshake that no device expects")

    def _on_welcome(self, welcome: Welcome | KeyedWelcome, now: float) -> None:
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
            return  # answers a HELLO that the gateway misread
        check = self._check(welcome, hello)
        if check is None:
            self.statistics.malformed_frames += 1
            return
        self._greeting = None
        self._welcome = welcome
        self.incarnation = welcome.incarnation
        sizes = min(self._mtu, welcome.mtu), min(self._window, welcome.window)
        proved = self._key not in (None, NO_KEY)
        session = self._start(check, sizes, hello, welcome, proved=proved)
        # The first frame answers the gateway's challenge.
        session.acknowledgement_due = self._key is not None

    def _check(self, welcome: Welcome | KeyedWelcome, hello: Hello) -> Check | None:
        """Return the check of the session that this WELCOME begins; None if its sender does not
        prove the key.
        """
        if isinstance(welcome, Welcome):
            return welcome.check
        if self._key is None or not welcome.proves(self._key, hello):
            return None
        return welcome.check(self._key, hello)

    def _on_late_welcome(self, welcome: Welcome | KeyedWelcome, now: float) -> None:
        if (welcome.boot, welcome.attempt) != (self._welcome.boot, self._welcome.attempt):
            return
        if isinstance(welcome, KeyedWelcome):  # the gateway does not know this session yet
            assert self.session is not None  # noqa: S101 - for the type checker
            self.session.acknowledgement_due = True
        elif isinstance(self._welcome, Welcome) and welcome.check != self._welcome.check:
            self._drop("the gateway has a newer session")
            self._greet(now)

    def _on_time(self, session: Session, frame: Time, now: float) -> None:
        """Ignore the time: this device does not ask for it."""

    def _first_of_next(self, body: bytes, now: float) -> bytes | None:
        """Return None: for a device, only a WELCOME begins the next session, no other frame."""
        return None

    def _on_stray(self, now: float) -> None:
        """Ignore frames of the earlier session until a WELCOME arrives."""

    def _ended(self, now: float) -> None:
        self._greet(now)
