"""The link between a client's transport and the broker. It decides when the gateway reads from the
client.

In: bytes of a client, and the news that the client has read its output. Out: calls of the broker
with these bytes and this news, in turns. The link stops reading from a client that does not read
its output or that has sent more than a turn has time for. If a client's user exceeds the quota, the
link reads from the client once a second: the input waits, and PINGREQ packets are answered.

Calls from transports and timers pass their exceptions to the engine (`Turns.serve`) and raise none.
An error of one connection ends only that connection (`gateway/broker/README.md`).
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from gateway.broker import dispatch
from gateway.broker.broker import Broker
from gateway.broker.connection import Connection
from gateway.broker.refusals import say
from gateway.broker.session import Attached
from gateway.links.transport import Lingering, Transport
from gateway.mqtt.reason import ReasonCode
from gateway.mqtt.runs import Piece
from gateway.runtime.output import MANY, Output

_FEW = 4_096
"""If a client's output is full, or its input is postponed to a later turn, the gateway does not
parse its packets. The gateway still reads until more than this number of bytes waits to be parsed.
There are two reasons: a PINGREQ may be among these bytes, and each stop of reading takes a system
call.
"""
_LOOK_S = 1.0
"""Seconds between two reads from a client whose user exceeds the quota. The gateway reads in spite
of the quota, to find the client's PINGREQ in time.
"""
_PIECE = 32_768
"""Largest part of a large payload, in bytes, that the transport gets at a time."""
_PIECES = 4
"""Number of parts of `_PIECE` bytes that the transport gets before the gateway serves other links.
"""
_MOST_PACED = 1_000_000
"""If a client whose user exceeds the quota has more postponed input than this, in bytes, the
gateway stops reading from the client.
"""
_PART_PACED = 4
"""Postponed input may take 1 / _PART_PACED of `limits.memory_bytes`. The rest is for clients within
their quota.
"""
_SOON_S = 0.01
"""Shortest delay, in seconds, of the timer that checks a paused client."""


class LinkCommits(Protocol):
    """The part of the engine's commits that a link uses."""

    @property
    def has_backlog(self) -> bool: ...

    def hold_back(self, link: "ClientLink") -> None: ...


class LinkEngine(Protocol):
    """The part of the engine that a link uses."""

    broker: Broker
    output: Output

    @property
    def commits(self) -> LinkCommits: ...

    in_turn: bool
    awaited: int
    broken: bool
    """Whether shared state may be half changed. If so, no more input is accepted."""

    def begin(self) -> None: ...

    def hear(self) -> None: ...

    def put_off(self, link: "ClientLink") -> None: ...

    def forget(self, connection: Attached) -> None: ...

    def call_later(self, seconds: float, call: Callable[[], None]) -> None: ...

    def fault(self, connection: Attached, error: Exception, doing: str) -> None:
        """Handle an exception of a call for one connection."""

    def serve(
        self, connection: Attached, doing: str, call: Callable[..., object], *args: object
    ) -> None:
        """Make a call for one connection. An exception goes to `fault`. doing: words for the log,
        after "while".
        """


class ClientLink:
    """The link between one transport and the broker (a `Receiver`)."""

    __slots__ = (
        "_engine",
        "_enough",
        "_held_back",
        "_looked",
        "_lost_reason",
        "_paced",
        "_paused",
        "_pausing",
        "_put_off",
        "_quota_pause",
        "_quota_pause_ends",
        "_transport",
        "_undelivered",
        "_waiting",
        "connection",
        "stuck",
        "unsent",
        "waiting",
    )

    def __init__(self, engine: LinkEngine, transport: Transport, connection: Connection) -> None:
        self._engine = engine
        self._transport = transport
        self.connection = connection
        self._held_back = False
        """Whether reading waits for a commit."""
        self._put_off = False
        """Whether input of the client waits for a later turn, because one turn was not enough."""
        self._quota_pause = False
        """Whether input waits because the user exceeds the quota."""
        self._quota_pause_ends = 0.0
        self._paced = False
        """Whether input that arrived while the user exceeded the quota still waits."""
        self._looked = float("-inf")
        self._lost_reason: str | None = None
        """Reason why the transport is gone; kept while input of the client still waits. None while
        the transport exists.
        """
        self._pausing = False
        """Whether a timer for the end of the client's pause is set."""
        self._paused = False
        self.stuck = False
        """Whether the peer has left more output unread than is allowed."""
        self._undelivered = 0
        """Bytes that had not reached the peer at the last check."""
        self.unsent = 0
        """Unsent bytes of the transport at the last check; 0 for MANY bytes or fewer."""
        self._waiting: deque[memoryview] = deque()
        """Output that the transport does not have yet: large payloads, and all output after them.
        `feed` passes this output on in parts, as the transport can send them. Thus only a small
        part is encrypted or framed in advance, and receivers share one copy of each payload.
        """
        self.waiting = 0
        """Number of bytes in `_waiting`."""
        self._enough: int | None = getattr(transport, "enough", None)

    # -- bytes out

    def write(self, data: Piece) -> None:
        """Send bytes. If the peer leaves too much output unread, the gateway reads little more from
        the peer.
        """
        if self._lost_reason is not None:
            return
        if type(data) is bytes and not self.waiting:
            self._transport.write(data)
        else:
            view = memoryview(data)
            self._engine.output.hold(view)
            self._waiting.append(view)
            self.waiting += len(view)
            self._engine.output.feed_later(self)
        unsent = self._transport.unsent
        if unsent > MANY or self.unsent or self.waiting:
            self._engine.output.note_unsent(self, unsent)
            most = self._engine.broker.limits.outgoing_bytes
            if unsent + self.waiting > max(most, self._transport.high_water):
                self.stuck = self.connection.full = True
                if not self._held_back:
                    self._hear()  # the peer's silence is counted from here on
                self.throttle()

    def feed(self) -> None:
        """Give the transport as many parts of the waiting output as it can send now. When the
        transport can send more, it calls `writable`.
        """
        transport, engine, enough = self._transport, self._engine, self._enough
        for _ in range(_PIECES):
            if not self._waiting:
                break
            if transport.unsent > (enough or transport.high_water):
                return
            view = self._waiting[0]
            piece, rest = view[:_PIECE], view[_PIECE:]
            transport.write(bytes(piece) if enough is None else piece)  # type: ignore[arg-type]
            self.waiting -= len(piece)
            if rest:
                self._waiting[0] = rest
            else:
                self._waiting.popleft()
                engine.output.release(view)
        if self._waiting:
            engine.output.feed_later(self)
        elif self.stuck and transport.unsent <= transport.high_water:
            # a transport that took all without a pause does not call `writable`
            self._free()

    def discard(self) -> None:
        """Drop all waiting output, because the connection has ended."""
        while self._waiting:
            self._engine.output.release(self._waiting.popleft())
        self.waiting = 0
        self._engine.output.note_unsent(self, 0)

    def writable(self) -> None:
        engine = self._engine
        engine.begin()
        engine.serve(self.connection, "resuming its output", self._writable)

    def _writable(self) -> None:
        self.feed()
        if self.waiting:
            self._engine.output.note_unsent(self, self._transport.unsent)
        else:
            self._free()

    def _free(self) -> None:
        """Send more and continue to read, because no output waits any more."""
        self._engine.output.note_unsent(self, self._transport.unsent)
        self.stuck = False
        self.resume()

    def resume(self) -> None:
        """Send more and continue to read, because the client has read its output."""
        self.connection.resume_sending()
        self._hear()
        self.throttle()

    def look(self) -> int:
        """Update `unsent` with the transport's unsent bytes, and return it."""
        self._engine.output.note_unsent(self, self._transport.unsent)
        return self.unsent

    def see_progress(self) -> None:
        """If the peer has much unread output, and has read some of it since the last call, count it
        as alive. Its PINGREQ may be in bytes that the gateway has not read yet.
        """
        if self.stuck:
            before, self._undelivered = (
                self._undelivered,
                self._transport.undelivered + self.waiting,
            )
            if self._undelivered < before:
                self.connection.seen = self._engine.broker.now

    def close(self) -> None:
        """Hand all output to the transport, which closes the connection after it. If more than MANY
        bytes are unsent, drop them and close the connection at once.
        """
        if self._lost_reason is not None:
            return
        if self._transport.unsent + self.waiting > MANY:
            self._transport.abort()
            return
        for view in self._waiting:
            self._transport.write(bytes(view))
        if self.connection.lingers and isinstance(self._transport, Lingering):
            if self._paused:
                self._transport.resume_reading()
            self._transport.linger()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once. If that raises an exception, close it in the usual way."""
        try:
            self._transport.abort()
        except Exception:
            self._transport.close()

    def give_up(self) -> None:
        """End a connection whose peer reads too little."""
        connection = self.connection
        say(
            self._engine.broker,
            connection,
            ReasonCode.QUOTA_EXCEEDED,
            "the client reads too slowly",
        )
        connection.disconnect(ReasonCode.QUOTA_EXCEEDED, "the client reads too slowly")
        self.discard()
        self._transport.abort()

    # -- bytes in

    def _hear(self) -> None:
        """Note that the gateway reads from the client again."""
        self.connection.unread = False
        self.connection.seen = self._engine.broker.now

    def hold_back(self) -> None:
        """Stop reading from this publisher. The caller calls `read_on` when a commit is on disk."""
        self._held_back = self.connection.unread = True
        self.throttle()

    def read_on(self) -> None:
        """Continue to read: the commit for which this link has waited is on disk."""
        self._held_back = False
        self._hear()
        self.throttle()

    def wake(self) -> None:
        """Continue to read if the pause for the user's quota is over; otherwise set the timer
        again.
        """
        self._engine.begin()
        self._engine.serve(
            self.connection, "resuming its input after a pause for the quota", self._wake
        )

    def _wake(self) -> None:
        if self._engine.broker.now < self._quota_pause_ends:
            self._wake_later()
        else:
            self.connection.quota_pause_s, self._quota_pause = 0.0, False
            self._hear()
        self.throttle()

    def _wake_later(self) -> None:
        remaining_s = self._quota_pause_ends - self._engine.broker.now
        self._engine.call_later(min(max(remaining_s, _SOON_S), _LOOK_S), self.wake)

    @property
    def _is_due_for_reading(self) -> bool:
        """Whether to read now from a client whose user exceeds the quota. The gateway does so once
        per _LOOK_S, to find the client's PINGREQ packets, while there is room for its input.
        """
        connection, broker = self.connection, self._engine.broker
        return (
            self._paced
            and not (self._held_back or connection.full)
            and (connection.pause is None or not connection.pause.stops_reading)
            and connection.kept <= _MOST_PACED
            and broker.partial < broker.limits.memory_bytes // _PART_PACED
            and broker.now - self._looked >= _LOOK_S
        )

    def _wait_for_pause(self) -> None:
        """Set a timer for the end of the client's pause, if none is set and something waits for
        this end.
        """
        connection = self.connection
        pause = connection.pause
        ends = None if pause is None else pause.ends(bool(connection.copied))
        if ends is not None and not self._pausing:
            self._pausing = True
            remaining_s = max(_SOON_S, ends - self._engine.broker.now)
            self._engine.call_later(remaining_s, self._after_pause)

    def _after_pause(self) -> None:
        self._engine.begin()
        self._engine.serve(
            self.connection, "resuming its input after a pause", self._go_on_after_pause
        )

    def _go_on_after_pause(self) -> None:
        self._pausing = False
        connection = self.connection
        if connection.closing is None:
            connection.interrupted = True  # unparsed input may be waiting
            if connection.pause is None or not connection.pause.stops_reading:
                self._hear()
            self.throttle()

    def throttle(self) -> None:
        """Start or stop reading from the peer, depending on its pauses, its quota and its unread
        output.
        """
        connection, stopped = self.connection, self._held_back or self._quota_pause
        if connection.pause is not None:
            self._wait_for_pause()
            stopped = stopped or connection.pause.stops_reading
        full, interrupted = connection.full, connection.interrupted
        if interrupted and not (stopped or full or self._put_off):
            self._put_off = True
            self._engine.put_off(self)
        self._paced = self._paced and (self._quota_pause or interrupted)
        paused = stopped or ((full or interrupted) and connection.kept > _FEW)
        paused = paused and not self._is_due_for_reading
        if paused != self._paused and self._lost_reason is None:
            self._paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def go_on(self) -> None:
        """Continue with the client's postponed input, unless there is still a reason to wait."""
        self._put_off = False
        connection = self.connection
        if self._held_back or self._quota_pause or connection.full:
            return
        if connection.pause is not None and connection.pause.stops_reading:
            return
        self.receive(b"")
        self.throttle()
        if self._lost_reason is not None:
            self._end()

    def receive(self, data: bytes) -> None:
        engine, connection = self._engine, self.connection
        try:
            if not engine.in_turn:
                if engine.broken:
                    return
                engine.begin()
            if engine.awaited:
                engine.hear()
            if data:
                self._looked = engine.broker.now
            dispatch.receive(connection, data)
            if connection.quota_pause_s:
                if not self._quota_pause:
                    self._quota_pause = self._paced = connection.unread = True
                    self._quota_pause_ends = engine.broker.now + connection.quota_pause_s
                    self._wake_later()
                self.throttle()
            if connection.pause is not None:
                connection.unread = connection.unread or connection.pause.stops_reading
                self.throttle()
            if engine.commits.has_backlog:
                engine.commits.hold_back(self)
            elif connection.full:
                connection.unread = not self.stuck
                self.throttle()
            elif connection.interrupted:
                self.throttle()
        except Exception as error:
            engine.fault(connection, error, "handling its input")

    def lost(self, reason: str) -> None:
        self._lost_reason = reason
        self._engine.begin()
        self._engine.serve(self.connection, "ending its connection", self._end)

    def _end(self) -> None:
        """Tell the broker that the client is gone. If input waits because the user exceeds the
        quota, this happens after the input was handled.
        """
        connection = self.connection
        if self._paced and connection.kept and connection.closing is None and not connection.full:
            return
        connection.lost(self._lost_reason or "")
        self._engine.forget(connection)
