"""Reader of the bytes that both ends send on a wire, before any harm: frames of the reliable link
and their MQTT packets, with the rig's own readers (hil/formats). The tap also notes which frames
arrive complete. It does no I/O, and changes nothing.

In: the bytes that each end sends, in pieces, and those that arrive at the other end. Out, for each
direction: counts of frames and PUBLISH packets, and of repeated ones. As events: packets and
sessions of both ends; bytes that fit no session of the sender; unexpected answers; streams that can
no longer be read; acknowledgements of a frame that never arrived complete.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hil.formats import packets
from hil.formats.connection import BACK, DIRECTIONS, Connection
from hil.formats.frames import (
    MODULO,
    Ack,
    Cutter,
    Data,
    FrameError,
    Hello,
    Kind,
    Seal,
    Time,
    Welcome,
    belongs,
    handshake_seal,
    kind_of,
    read_handshake,
    read_session,
)
from hil.formats.keys import NO_KEY
from hil.formats.packets import PacketError, Publish

COUNTED = ("frames", "frames_again", "publishes", "publishes_again")

Tell = Callable[[dict[str, Any]], object]


@dataclass(slots=True)
class _Direction:
    """One direction of a session. fitting: number of frames of this session. strange: number of
    byte strings that only look like frames. expected: sequence of the next frame to read. ahead:
    payloads of later frames that were seen already, by sequence. arrived: next sequence that the
    other end expects, if it gets only complete frames."""

    fitting: int = 0
    strange: int = 0
    expected: int = 0
    arrived: int = 0
    ahead: dict[int, bytes] = field(default_factory=dict)
    stream: packets.Cutter = field(default_factory=packets.Cutter)

    def counts(self) -> dict[str, int]:
        return {"fitting": self.fitting, "strange": self.strange}


@dataclass(slots=True, eq=False)
class _Session:
    hello: Hello | None
    """HELLO that `welcome` answers; None if it is not known."""
    welcome: Welcome
    seal: Seal | None
    connection: Connection
    ways: dict[str, _Direction] = field(
        default_factory=lambda: {direction: _Direction() for direction in DIRECTIONS}
    )

    @property
    def inputs(self) -> dict[str, int]:
        return self.welcome.inputs(self.hello)


class Tap:
    """Reader of both directions of a wire. counts: for each direction, the numbers of DATA frames
    (`frames`), of repeated ones (`frames_again`), of PUBLISH packets (`publishes`), and of those
    with DUP (`publishes_again`)."""

    def __init__(self, tell: Tell | None = None, key: Callable[[], bytes] = lambda: NO_KEY) -> None:
        """Create the tap. key: returns the key of the board that is on the line now."""
        self._key = key
        self.counts = {direction: dict.fromkeys(COUNTED, 0) for direction in DIRECTIONS}
        self._tell = tell
        self._cutters = {direction: Cutter() for direction in DIRECTIONS}
        self._arriving = {direction: Cutter() for direction in DIRECTIONS}
        self.hello: Hello | None = None
        """Last HELLO of the board."""
        self.first_hello: Hello | None = None
        self.refusals = 0
        """Number of WELCOMEs that refused the board."""
        # the newest session first; then those that board and gateway still use: a board may restart
        # several times before it accepts one
        self._sessions: list[_Session] = []
        self._gateways: _Session | None = None

    def feed(self, direction: str, data: bytes) -> None:
        for body in self._cutters[direction].feed(data):
            with suppress(FrameError):  # no end accepts an invalid frame
                if kind_of(body) is Kind.HANDSHAKE:
                    if belongs(body, handshake_seal(body)):
                        self._handshake(direction, read_handshake(body))
                elif self._sessions:
                    self._session_frame(direction, body)

    def arrived(self, direction: str, data: bytes) -> None:
        """Handle bytes as they arrived at the far end, with all changes that faults have made."""
        for body in self._arriving[direction].feed(data):
            if kind_of(body) is not Kind.DATA:
                continue
            for session in self._sessions:
                if session.seal and belongs(body, session.seal):
                    way = session.ways[direction]
                    if body[0] >> 3 == way.arrived:
                        way.arrived = (way.arrived + 1) % MODULO

    def close(self) -> None:
        """Report the remaining sessions."""
        while self._sessions:
            self._end(self._sessions.pop())

    def _handshake(self, direction: str, message: object) -> None:
        if direction == "up" and isinstance(message, Hello):
            self.hello = message
            self.first_hello = self.first_hello or message
            names = ("name", "boot", "incarnation", "next_sequence", "power_on")
            self._say("hello", {name: getattr(message, name) for name in names})
        elif direction == "down" and isinstance(message, Welcome):
            self.refusals += message.refused
            if not message.refused:
                self._welcomed(message)

    def _welcomed(self, welcome: Welcome) -> None:
        """Handle a WELCOME. No session begins if the newest WELCOME is repeated."""
        hello = self.hello
        if hello and (hello.boot, hello.attempt) != (welcome.boot, welcome.attempt):
            hello = None  # this WELCOME answers an earlier HELLO
        if self._sessions:
            newest = self._sessions[0]
            again = newest.welcome.inputs(None) == welcome.inputs(None)
            if again and hello in (None, newest.hello):
                return
        connection = Connection(welcome.incarnation, self._say)
        session = _Session(hello, welcome, welcome.seal(hello, self._key()), connection)
        if session.seal is None:
            return  # no board accepts it, or the wire was connected after its HELLO
        self._sessions.insert(0, session)
        for old in self._sessions[2:]:
            if old is not self._gateways:
                self._sessions.remove(old)
                self._end(old)
        offer = {"incarnation": welcome.incarnation, "timed": welcome.utc > 0}
        self._say("welcome", {**offer, **session.inputs})

    def _end(self, session: _Session) -> None:
        ways = {direction: way.counts() for direction, way in session.ways.items()}
        self._say("session", {**session.inputs, **ways})

    def _session_frame(self, direction: str, body: bytes) -> None:
        for session in self._sessions:
            if session.seal and belongs(body, session.seal):
                session.ways[direction].fitting += 1
                self._gateways = session if direction == "down" else self._gateways
                frame = read_session(body, session.seal)
                if isinstance(frame, Data | Ack):
                    self._acknowledged(direction, session, frame.acknowledgement)
                match frame:
                    case Data():
                        self._data(direction, session, frame)
                    case Time(utc=float()):
                        self._say("time", {})
                return
        self._sessions[0].ways[direction].strange += 1

    def _acknowledged(self, direction: str, session: _Session, following: int) -> None:
        """Check that an acknowledgement is only for frames that have arrived. following: number of
        the frame that its sender expects next. Frames in flight use less than half of all numbers,
        so a distance below half means that `following` is too high.
        """
        way = session.ways[BACK[direction]]
        beyond = (following - way.arrived) % MODULO
        if 0 < beyond < MODULO // 2:
            self._say("unarrived", {"direction": BACK[direction], "frames": beyond})
            way.arrived = following

    def _data(self, direction: str, session: _Session, frame: Data) -> None:
        """Count a DATA frame, and read each payload once all earlier ones have arrived. Fewer than
        half of all sequence numbers are in flight, so a number behind the expected one is a
        repetition.
        """
        counts, way = self.counts[direction], session.ways[direction]
        counts["frames"] += 1
        ahead = (frame.sequence - way.expected) % MODULO
        if ahead >= MODULO // 2 or frame.sequence in way.ahead:
            counts["frames_again"] += 1
            return
        way.ahead[frame.sequence] = frame.payload
        while (payload := way.ahead.pop(way.expected, None)) is not None:
            way.expected = (way.expected + 1) % MODULO
            self._read_on(direction, session, payload)

    def _read_on(self, direction: str, session: _Session, payload: bytes) -> None:
        connection = session.connection
        if direction in connection.unread:
            return
        try:
            for packet in session.ways[direction].stream.feed(payload):
                if isinstance(packet, Publish):
                    self.counts[direction]["publishes"] += 1
                    self.counts[direction]["publishes_again"] += packet.dup
                connection.take(direction, packet)
        except PacketError as error:
            connection.break_off(direction, error)

    def _say(self, event: str, data: dict[str, Any]) -> None:
        if self._tell:
            self._tell({"event": event, **data})
