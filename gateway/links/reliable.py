"""The part of the reliable link that both ends share: sessions over a line that loses and alters
bytes (format: FORMAT.md). Sans-IO.

In: bytes from the line (`receive`), bytes of MQTT to send (`write`), the time. Out: bytes for the
line (`take`), events, and the time of the next call of `tick` (`deadline`). `now` is a monotonic
clock in seconds.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

from gateway.links.arq import Line, ReceiveWindow, SendWindow
from gateway.links.frames import (
    HANDSHAKE_TYPE,
    MTU,
    Ack,
    Check,
    Data,
    FrameDecoder,
    FrameError,
    Time,
    frame_type,
    handshake_from_body,
)
from gateway.links.greeter import Refusal
from gateway.links.handshake import MAX_WINDOW, Hello, KeyedWelcome, VersionError, Welcome
from gateway.links.statistics import LinkStatistics

ROOM = 4 * MAX_WINDOW * MTU
"""Largest number of received bytes that a session keeps while their reader is paused. Further
frames are not acknowledged, so the peer repeats them.
"""
PATIENCE_BYTES = 20
"""Time for which an acknowledgement waits for a DATA frame that can carry it, in byte times of the
line.
"""
LONG_FRAME = 48
"""A frame whose payload has at least this many bytes is acknowledged at once. Its MQTT packet
probably continues in the next frame, so there is no answer that could carry the acknowledgement.
"""


class Session:
    """A session of the link, which is one MQTT Network Connection: a window for each direction."""

    def __init__(self, check: Check, mtu: int, window: int, byte_time: float) -> None:
        self.check = check
        self.sending = SendWindow(mtu, window, byte_time)
        self.receiving = ReceiveWindow(ROOM)
        self.acknowledgement_due = False
        self.acknowledge_at = 0.0
        """Deadline for a bare ACK if no DATA frame carries the acknowledgement first."""
        self.closing = False


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """Event: a handshake is complete. The valid incarnation is the one in `welcome`. proved:
    whether device and gateway have proved their key to each other.
    """

    session: Session
    hello: Hello
    welcome: Welcome | KeyedWelcome
    proved: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """Event: bytes of the session's stream, in order."""

    session: Session
    data: bytes


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """Event: the session has ended although this side did not close it. The Network Connection is
    gone.
    """

    session: Session
    reason: str


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """Event: the peer uses another version of the link."""

    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Event: the device was refused. name: as in its HELLO. reason: known only to the gateway; None
    at the device.
    """

    name: str
    reason: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Unheard:
    """Event: a device keeps sending HELLO and accepts no answer. name: as in its HELLO."""

    name: str


Event = SessionStarted | Received | SessionEnded | OtherVersion | Refused | Unheard


class LinkState(Enum):
    """The states of a link over a line. A session of the link is MQTT's Network Connection."""

    WAITING = "no session: the gateway asks for a greeting, the device greets"
    OPEN = "frames carry bytes in both directions"
    CLOSING = "written bytes wait for their acknowledgement, nothing is delivered"


NEXT: dict[LinkState, frozenset[LinkState]] = {
    LinkState.WAITING: frozenset({LinkState.OPEN}),
    # a greeting begins the next session at once
    LinkState.OPEN: frozenset({LinkState.OPEN, LinkState.CLOSING, LinkState.WAITING}),
    LinkState.CLOSING: frozenset({LinkState.OPEN, LinkState.WAITING}),
}


class ReliableLink(ABC):
    """Base class of the two ends of a reliable link. baud: rate of the line, for timing only; None
    if bytes take no time.
    """

    patient = False
    """Whether an acknowledgement waits for a DATA frame that can carry it (`PATIENCE_BYTES`)."""

    def __init__(self, baud: int | None = None) -> None:
        self.statistics = LinkStatistics()
        self.session: Session | None = None
        self._line = Line(baud)
        self._decoder = FrameDecoder(self.statistics)
        self._outgoing: list[bytes] = []
        self._events: list[Event] = []

    @property
    def state(self) -> LinkState:
        if self.session is None:
            return LinkState.WAITING
        return LinkState.CLOSING if self.session.closing else LinkState.OPEN

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Handle bytes from the line, which may begin and end inside a frame. Return the events."""
        self.statistics.bytes_received += len(data)
        for body in self._decoder.feed(data):
            try:
                self._on_body(body, now)
            except VersionError as error:
                self._events.append(OtherVersion(error.version))
            except FrameError:
                self.statistics.malformed_frames += 1
        return self._settle(now)

    def tick(self, now: float) -> list[Event]:
        """Handle the deadlines that have passed, and return the events. Call this at `deadline`."""
        session = self.session
        if session is not None and session.sending.expire(now):
            self.statistics.give_ups += 1
            self._drop("no acknowledgement from the peer")
            self._ended(now)
        return self._settle(now)

    def write(self, session: Session, data: bytes, now: float) -> None:
        """Send `data` on this session. Does nothing if the session has ended."""
        if session is self.session and not session.closing:
            session.sending.write(data)
            self._put_data(now)

    def resume(self, session: Session, now: float) -> list[Event]:
        """End the pause of deliveries to a session's reader, and return the events. The
        acknowledgement that is sent makes the peer repeat the frames that were refused during the
        pause.
        """
        if session is self.session:
            payload = session.receiving.resume()
            if payload and not session.closing:
                self._deliver(session, payload)
            self._put_ack(session, now)
        return self._settle(now)

    def close(self, session: Session, now: float) -> list[Event]:
        """End the Network Connection as soon as all written bytes are acknowledged, and return the
        events. No `SessionEnded` follows.
        """
        if session is self.session:
            session.closing = True
        return self._settle(now)

    def abort(self, session: Session, now: float) -> None:
        """End the Network Connection now; no `SessionEnded` follows."""
        if session is self.session:
            self._drop()
            self._ended(now)

    def take(self) -> bytes:
        """Return the queued bytes to write to the line, and empty the queue."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        self.statistics.bytes_sent += len(data)
        return data

    @property
    def deadline(self) -> float | None:
        """Time of the next call of `tick`; None if no call is needed."""
        session = self.session
        if session is None:
            return None
        deadline = session.sending.deadline
        if not session.acknowledgement_due:
            return deadline
        return session.acknowledge_at if deadline is None else min(session.acknowledge_at, deadline)

    def _settle(self, now: float) -> list[Event]:
        """Send DATA and ACK frames that are due. End a closing session that has nothing left to
        send. Return the events.
        """
        self._put_data(now)
        session = self.session
        if session is not None:
            if session.acknowledgement_due and (session.closing or session.acknowledge_at <= now):
                self._put_ack(session, now)
            if session.closing and not session.sending.unsent:
                self._drop()
                self._ended(now)
        events, self._events = self._events, []
        return events

    def _on_body(self, body: bytes, now: float) -> None:
        kind = frame_type(body)
        if kind == HANDSHAKE_TYPE:
            opened = handshake_from_body(body)
            if opened is None:
                self.statistics.crc_errors += 1
            else:
                self.statistics.frames_received += 1
                self._on_handshake(*opened, now)
            return
        session = self.session
        content = session.check.open(body) if session is not None else None
        if content is None:
            content = self._first_of_next(body, now)
        if content is None:
            if session is None:
                self._on_stray(now)
            else:
                self.statistics.crc_errors += 1
            return
        self.statistics.frames_received += 1
        self._on_frame(kind, content, now)

    def _on_frame(self, kind: int, content: bytes, now: float) -> None:
        session = self.session
        assert session is not None  # noqa: S101 - for the type checker
        if kind == Data.TYPE:
            self._on_data(session, Data.from_content(content), now)
        elif kind == Ack.TYPE:
            acknowledgement = Ack.from_content(content).acknowledgement
            self._on_acknowledgement(session, acknowledgement, now, bare=True)
        else:
            self._on_time(session, Time.from_content(content), now)

    def _on_data(self, session: Session, frame: Data, now: float) -> None:
        self._on_acknowledgement(session, frame.acknowledgement, now, bare=False)
        expected = frame.sequence == session.receiving.expected
        payload = session.receiving.take(frame.sequence, frame.payload)
        if payload is not None:
            waits = self.patient and not session.acknowledgement_due
            patience = (
                PATIENCE_BYTES * self._line.byte_time if len(frame.payload) < LONG_FRAME else 0.0
            )
            session.acknowledge_at = now + patience if waits else now
            session.acknowledgement_due = True
            self.statistics.payload_bytes_received += len(frame.payload)
            if payload and not session.closing:
                self._deliver(session, payload)
        elif not expected:
            # Each of these frames gets an acknowledgement: repeated numbers tell the peer which
            # frame is missing.
            self.statistics.duplicates += 1
            self._put_ack(session, now)

    def _deliver(self, session: Session, data: bytes) -> None:
        """Add data to the last event if it is the session's `Received` event; otherwise add a new
        one. So data that arrive together become one event. If the reader pauses because of this
        event, no second one follows.
        """
        last = self._events[-1] if self._events else None
        if isinstance(last, Received) and last.session is session:
            self._events[-1] = Received(session, last.data + data)
        else:
            self._events.append(Received(session, data))

    def _on_acknowledgement(self, session: Session, number: int, now: float, *, bare: bool) -> None:
        self.statistics.payload_bytes_acknowledged += session.sending.acknowledge(
            number, now, bare=bare
        )
        self.statistics.round_trip = session.sending.round_trip.smoothed

    def _put_data(self, now: float) -> None:
        session = self.session
        if session is None:
            return
        for piece in session.sending.due():
            session.acknowledgement_due = False
            self.statistics.retransmissions += piece.repeated
            frame = Data(piece.sequence, session.receiving.expected, piece.payload)
            piece.sent_at = self._put(frame.to_bytes(session.check), now, lead=piece.repeated)

    def _put_ack(self, session: Session, now: float) -> None:
        session.acknowledgement_due = False
        self._put(Ack(session.receiving.expected).to_bytes(session.check), now)

    def _put(self, frame: bytes, now: float, *, lead: bool = False) -> float:
        """Queue a frame for the line. Return the time at which its last byte leaves. lead: put a
        delimiter in front, so that leftover noise at the peer does not swallow this frame too.
        """
        self.statistics.frames_sent += 1
        if lead:
            frame = b"\0" + frame
        self._outgoing.append(frame)
        return self._line.send(len(frame), now)

    def _start(
        self,
        check: Check,
        sizes: tuple[int, int],
        hello: Hello,
        welcome: Welcome | KeyedWelcome,
        *,
        proved: bool,
    ) -> Session:
        """Begin a session. sizes: mtu and window that the peer accepts."""
        self.session = session = Session(check, *sizes, self._line.byte_time)
        self.statistics.sessions += 1
        self._events.append(SessionStarted(session, hello, welcome, proved))
        return session

    def _drop(self, reason: str | None = None) -> None:
        """Drop the session. reason: why the session is lost; `SessionEnded` follows with this
        reason. None if this side has ended the session on purpose.
        """
        session, self.session = self.session, None
        if session is not None and reason is not None and not session.closing:
            self._events.append(SessionEnded(session, reason))

    @abstractmethod
    def _on_handshake(self, kind: int, payload: bytes, now: float) -> None:
        """Handle a handshake frame."""

    @abstractmethod
    def _on_time(self, session: Session, frame: Time, now: float) -> None:
        """Handle a device's request for the time, or the gateway's answer."""

    @abstractmethod
    def _first_of_next(self, body: bytes, now: float) -> bytes | None:
        """Handle a frame that does not belong to the session. If it is the first frame of an
        offered session, begin that session, and return the frame's control byte and payload. Else
        return None.
        """

    @abstractmethod
    def _on_stray(self, now: float) -> None:
        """Handle a frame or noise while there is no session."""

    @abstractmethod
    def _ended(self, now: float) -> None:
        """Tell the peer that this side has ended the session: the gateway by a WHO, the device by a
        new HELLO."""
