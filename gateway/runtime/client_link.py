"""One connection between its carrier and the broker: when it is read from, and when it is not.

In: bytes of a client, and word that it has taken what was sent to it. Out: the same to the broker,
in turns; and nothing more is read from a client that does not take what it is sent or that has
brought more than there was time for. A client whose user publishes too much is read now and then,
and what it brings waits; its pings are answered.

Whatever a carrier or a timer calls here hands its exceptions to the engine (`Turns.serve`), and
raises none: an error of one connection ends that connection (`gateway/broker/README.md`).
"""

from collections.abc import Callable
from typing import Protocol

from gateway.broker import dispatch
from gateway.broker.broker import Broker
from gateway.broker.connection import Connection
from gateway.broker.refusals import say
from gateway.broker.session import Attached
from gateway.links.carrier import Carrier, Lingering
from gateway.mqtt.reason import ReasonCode

MANY = 65_536
"""Unsent bytes of one connection that are worth counting."""
_FEW = 4_096
"""Bytes that are read from a client though they must wait: it may ping while it does not take what
it is sent, and to stop reading costs a system call.
"""
_LOOK_S = 1.0
_MOST_PACED = 1_000_000
"""A client whose user publishes too much is read once in so many seconds, as long as it has brought
no more than so many bytes: it may ping."""
_SOON_S = 0.01
"""The least time until a paused client is looked at."""


class Turns(Protocol):
    """What a link uses of the engine."""

    broker: Broker
    in_turn: bool
    awaited: int
    broken: bool
    """Shared state may be half changed: nothing more is taken in."""

    @property
    def has_backlog(self) -> bool: ...

    def begin(self) -> None: ...

    def hear(self) -> None: ...

    def put_off(self, link: "ClientLink") -> None: ...

    def hold_back(self, link: "ClientLink") -> None: ...

    def note_unsent(self, link: "ClientLink", unsent: int) -> None: ...

    def forget(self, connection: Attached) -> None: ...

    def call_later(self, seconds: float, call: Callable[[], None]) -> None: ...

    def fault(self, connection: Attached, error: Exception, doing: str) -> None:
        """A call for one connection has raised an exception."""

    def serve(
        self, connection: Attached, doing: str, call: Callable[..., object], *args: object
    ) -> None:
        """Do a call for one connection; an exception goes to `fault`."""


class ClientLink:
    """One connection between its carrier and the broker (a `Receiver`)."""

    __slots__ = (
        "_carrier",
        "_gone",
        "_held_back",
        "_left",
        "_looked",
        "_paced",
        "_paused",
        "_pausing",
        "_put_off",
        "_rest_ends",
        "_rests",
        "_turns",
        "connection",
        "stuck",
        "unsent",
    )

    def __init__(self, turns: Turns, carrier: Carrier, connection: Connection) -> None:
        self._turns = turns
        self._carrier = carrier
        self.connection = connection
        self._held_back = False
        """Nothing is read from it until a commit is through."""
        self._put_off = False
        """It has brought more than there was time for in a turn."""
        self._rests = False
        """Its user has published too much: what it brings waits."""
        self._rest_ends = 0.0
        """The end of that, on the time axis."""
        self._paced = False
        """What it has brought since its user published too much is not all taken yet."""
        self._looked = float("-inf")
        """When bytes came last, on the time axis."""
        self._gone: str | None = None
        """Why the carrier is gone, while something of its client still waits."""
        self._pausing = False
        """Its client is paused, and a timer runs until that is over."""
        self._paused = False
        self.stuck = False
        """The peer has not taken what was sent to it."""
        self._left = 0
        """Bytes that had not reached it when last looked."""
        self.unsent = 0
        """Bytes of that when last looked; 0 when they are few."""

    # -- bytes out

    def write(self, data: bytes) -> None:
        """Send. Of a peer that does not read, little more is read."""
        if self._gone is not None:
            return
        self._carrier.write(data)
        unsent = self._carrier.unsent
        if unsent > MANY or self.unsent:
            self._turns.note_unsent(self, unsent)
            most = self._turns.broker.limits.outgoing_bytes
            if unsent > max(most, self._carrier.high_water):
                self.stuck = self.connection.full = True
                if not self._held_back:
                    self.connection.hear()  # from now on it is the peer that is silent
                self.throttle()

    def writable(self) -> None:
        turns = self._turns
        turns.begin()
        turns.serve(self.connection, "it takes bytes again", self._writable)

    def _writable(self) -> None:
        self._turns.note_unsent(self, self._carrier.unsent)
        self.stuck = False
        self.resume()

    def resume(self) -> None:
        """What was sent is gone: send more, and read on."""
        self.connection.resume_sending()
        self.connection.hear()
        self.throttle()

    def look(self) -> int:
        """Bytes that the peer has still not taken."""
        self._turns.note_unsent(self, self._carrier.unsent)
        return self.unsent

    def see_progress(self) -> None:
        """A peer that takes anything of what it was sent is there, even if its pings still wait
        behind what is not read.
        """
        if self.stuck:
            before, self._left = self._left, self._carrier.undelivered
            if self._left < before:
                self.connection.seen = self._turns.broker.now

    def close(self) -> None:
        """The end. A client that has much left to read has not read for long: nobody counts that
        any more, and it is dropped.
        """
        if self._gone is not None:
            return
        if self._carrier.unsent > MANY:
            self._carrier.abort()
        elif self.connection.lingers and isinstance(self._carrier, Lingering):
            if self._paused:
                self._carrier.resume_reading()
            self._carrier.linger()
        else:
            self._carrier.close()

    def abort(self) -> None:
        """The end, at once. If the carrier cannot do that, it is asked to close."""
        try:
            self._carrier.abort()
        except Exception:
            self._carrier.close()

    def give_up(self) -> None:
        """End a connection whose peer takes too little."""
        connection = self.connection
        say(
            self._turns.broker,
            connection,
            ReasonCode.QUOTA_EXCEEDED,
            "the client reads too little",
        )
        connection.disconnect(ReasonCode.QUOTA_EXCEEDED, "the client reads too little")
        self._turns.note_unsent(self, 0)
        self._carrier.abort()

    # -- bytes in

    def hold_back(self) -> None:
        """Read nothing more from a publisher until a commit is through."""
        self._held_back = self.connection.unheard = True
        self.throttle()

    def read_on(self) -> None:
        """A commit is through."""
        self._held_back = False
        self.connection.hear()
        self.throttle()

    def wake(self) -> None:
        """Its user may publish again."""
        self._turns.begin()
        self._turns.serve(self.connection, "its user may publish again", self._wake)

    def _wake(self) -> None:
        if self._turns.broker.now < self._rest_ends:
            self._wake_later()
        else:
            self.connection.rest_s, self._rests = 0.0, False
            self.connection.hear()
        self.throttle()

    def _wake_later(self) -> None:
        left = self._rest_ends - self._turns.broker.now
        self._turns.call_later(min(max(left, _SOON_S), _LOOK_S), self.wake)

    @property
    def _is_due_a_look(self) -> bool:
        """Whether it is time to read a client whose messages wait for the rate of its user."""
        connection = self.connection
        return (
            self._paced
            and not (self._held_back or connection.full or connection.choked)
            and connection.kept <= _MOST_PACED
            and self._turns.broker.now - self._looked >= _LOOK_S
        )

    def _wait_for_pause(self) -> None:
        """Go on with a client that is paused when that is over, if something waits for it."""
        ends = self.connection.pause_ends
        if ends is not None and not self._pausing:
            self._pausing = True
            left = max(_SOON_S, ends - self._turns.broker.now)
            self._turns.call_later(left, self._after_pause)

    def _after_pause(self) -> None:
        self._turns.begin()
        self._turns.serve(self.connection, "its pause is over", self._go_on_after_pause)

    def _go_on_after_pause(self) -> None:
        self._pausing = False
        connection = self.connection
        if connection.closing is None:
            connection.interrupted = True  # something may be at hand that nobody has looked at
            if not connection.choked:
                connection.hear()
            self.throttle()

    def throttle(self) -> None:
        """Read from the peer, or do not."""
        connection, stopped = self.connection, self._held_back or self._rests
        if connection.pause is not None:
            self._wait_for_pause()
            stopped = stopped or connection.choked
        full, interrupted = connection.full, connection.interrupted
        if interrupted and not (stopped or full or self._put_off):
            self._put_off = True
            self._turns.put_off(self)
        self._paced = self._paced and (self._rests or interrupted)
        paused = stopped or ((full or interrupted) and connection.kept > _FEW)
        paused = paused and not self._is_due_a_look
        if paused != self._paused and self._gone is None:
            self._paused = paused
            if paused:
                self._carrier.pause_reading()
            else:
                self._carrier.resume_reading()

    def go_on(self) -> None:
        """There is time again for what it has brought."""
        self._put_off = False
        connection = self.connection
        if self._held_back or self._rests or connection.full or connection.choked:
            return
        self.receive(b"")
        self.throttle()
        if self._gone is not None:
            self._end()

    def receive(self, data: bytes) -> None:
        turns, connection = self._turns, self.connection
        try:
            if not turns.in_turn:
                if turns.broken:
                    return
                turns.begin()
            if turns.awaited:
                turns.hear()
            if data:
                self._looked = turns.broker.now
            dispatch.receive(connection, data)
            if connection.rest_s:
                if not self._rests:
                    self._rests = self._paced = connection.unheard = True
                    self._rest_ends = turns.broker.now + connection.rest_s
                    self._wake_later()
                self.throttle()
            if connection.pause is not None:
                connection.unheard = connection.unheard or connection.choked
                self.throttle()
            if turns.has_backlog:
                turns.hold_back(self)
            elif connection.full:
                connection.unheard = not self.stuck
                self.throttle()
            elif connection.interrupted:
                self.throttle()
        except Exception as error:
            turns.fault(connection, error, "its bytes are taken")

    def lost(self, reason: str) -> None:
        self._gone = reason
        self._turns.begin()
        self._turns.serve(self.connection, "its end is noted", self._end)

    def _end(self) -> None:
        """Note that the client is gone, when all is taken that waits for the rate of its user."""
        connection = self.connection
        if self._paced and connection.kept and connection.closing is None and not connection.full:
            return
        connection.lost(self._gone or "")
        self._turns.forget(connection)
