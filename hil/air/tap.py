"""Frames of one board and the gateways, read at the ether with the rig's own readers (hil/formats).
No I/O.

In: the complete frames that board and gateways sent, in order, and the board's key. Out, as events:
greetings, offers, packets of MQTT, and errors. Errors: a frame that fits no session of its sender;
an answer to an unknown frame of the board; two contents with one nonce; a PUBREL from the board
without an earlier PUBREC from a gateway.

The tap sees all frames, also those that no radio hears. A frame that fits no session is therefore a
fault of its sender. The content of a TURN counts once: when the gateway of the session hears or
answers the TURN. A gateway may answer a TURN although it did not hear the board: a foreign radio
has replayed the TURN. The event has the time at which the board sent the TURN.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from hil.formats import turns
from hil.formats.connection import Connection
from hil.formats.frames import FrameError
from hil.formats.packets import Answer, Kind, Packet, PacketError, Publish
from hil.formats.turns import COUNTERS, LOW_BITS, Hello, Turn, Type


@dataclass(slots=True)
class _Turn:
    """A TURN of the board. sent: time at which the first transmission of its frame ended, in ns."""

    frame: bytes
    says: Turn
    sent: int
    heard: bool = False


@dataclass(slots=True)
class _Session:
    """A session that a gateway has offered. gateway: name of this gateway. last: counter of the
    board's newest TURN. met: whether the board has received the offer. answers: answer frames, by
    counter.
    """

    gateway: str
    key: bytes
    offer: tuple[int, int]
    incarnation: int
    connection: Connection
    met: bool = False
    last: int = -1
    turns: dict[int, _Turn] = field(default_factory=dict)
    answers: dict[int, bytes] = field(default_factory=dict)


class AirTap:
    """Reader of one board's frames. key: returns the key in the board's flash; called at the first
    frame. enter: called for each event with its time in ns, name and fields.
    """

    def __init__(
        self, name: str, key: Callable[[], bytes], enter: Callable[[int, str, dict[str, Any]], None]
    ) -> None:
        self._name = name
        self._find_key = key
        self._key = b""
        self._enter = enter
        self._now = 0
        self._hellos: list[tuple[bytes, Hello]] = []
        # Newest first: the board or a gateway may still be in an older session.
        self._sessions: list[_Session] = []
        self.recorded: set[int] = set()
        """Packet identifiers of publications that a gateway has confirmed by PUBREC."""

    def feed(self, sender: str, frame: bytes, heard: Collection[str], now: int) -> None:
        """Handle a frame. sender: the board, or a gateway. heard: names of the board and gateways
        that heard the frame, without the help of a foreign radio. now: end of the frame, in ns of
        the monotonic clock.
        """
        self._now = now
        self._key = self._key or self._find_key()
        try:
            if sender == self._name:
                fits = self._from_board(frame, heard)
            else:
                fits = self._from_gateway(sender, frame, self._name in heard)
        except FrameError:
            fits = False
        if not fits:
            direction = "up" if sender == self._name else "down"
            self._say("strange", {"direction": direction, "frame": frame.hex()})

    def _say(self, event: str, data: dict[str, Any]) -> None:
        self._enter(self._now, event, data)

    def _from_board(self, frame: bytes, heard: Collection[str]) -> bool:
        match turns.head(frame).type:
            case Type.GREETING:
                return self._greeted(frame)
            case Type.TURN:
                return self._turned(frame, heard)
        return False

    def _from_gateway(self, gateway: str, frame: bytes, heard: bool) -> bool:
        if turns.head(frame).type is Type.ANSWER:
            return self._answered(gateway, frame, heard)
        if turns.is_welcome(frame):
            return self._offered(gateway, frame, heard)
        return turns.is_who(frame)

    def _greeted(self, frame: bytes) -> bool:
        hello = turns.read_hello(frame)
        if (frame, hello) not in self._hellos:
            self._hellos.insert(0, (frame, hello))
        names = ("boot", "attempt", "incarnation", "next_sequence", "nonce")
        self._say("hello", {name: getattr(hello, name) for name in names})
        return turns.is_hello(frame, self._key)

    def _offered(self, gateway: str, frame: bytes, heard: bool) -> bool:
        welcome = turns.read_welcome(frame)
        for hello_frame, hello in self._hellos:
            if turns.welcomes(frame, hello_frame, self._key):
                offer = hello.nonce, welcome.nonce
                known = (s for s in self._sessions if (s.gateway, s.offer) == (gateway, offer))
                session = next(known, None)
                if session is None:
                    key = turns.session_key(self._key, frame, hello_frame)
                    connection = Connection(welcome.incarnation, self._say)
                    session = _Session(gateway, key, offer, welcome.incarnation, connection)
                    self._sessions.insert(0, session)
                    nonces = {"board": hello.nonce, "gateway": welcome.nonce}
                    self._say("offer", {**nonces, "at": gateway})
                if (
                    heard and hello_frame == self._hellos[0][0]
                ):  # otherwise the offer is for an older HELLO
                    self._meet(session)
                return True
        self._say("unsent", {"what": "HELLO"})
        return True

    def _meet(self, session: _Session) -> None:
        session.met = True
        self._say("welcome", {"incarnation": session.incarnation, "at": session.gateway})

    def _turned(self, frame: bytes, heard: Collection[str]) -> bool:
        for session in self._sessions:
            counter = _counter(turns.head(frame).low, session.last + 1)
            content = turns.opened(frame, session.key, counter)
            if content is None:
                continue
            if not session.met:  # the board has the offer from a foreign radio
                self._meet(session)
            known = session.turns.get(counter)
            if known is None:
                says = self._read(session, content)
                known = session.turns[counter] = _Turn(frame, says, self._now)
                session.last = max(session.last, counter)
            elif known.frame != frame:
                self._say("reused", {"direction": "up", "counter": counter})
            if session.gateway in heard:
                self._tell(session, known, self._now)
            return True
        return False

    def _read(self, session: _Session, content: bytes) -> Turn:
        try:
            return turns.read_turn(content)
        except (FrameError, PacketError) as error:
            session.connection.break_off("up", error)
            return Turn(())

    def _tell(self, session: _Session, turn: _Turn, time: int) -> None:
        if turn.heard:
            return
        turn.heard = True
        now, self._now = self._now, time
        for packet in turn.says.packets:
            match packet:
                case Publish():  # the board uses the identifier again
                    self.recorded.discard(packet.id)
                case Answer(kind=Kind.PUBREL) if packet.id not in self.recorded and not any(
                    "down" in one.connection.unread for one in self._sessions
                ):  # an unread frame may have had the PUBREC
                    self._say("unrecorded", {"id": packet.id})
            session.connection.take("up", packet)
        self._now = now

    def _answered(self, gateway: str, frame: bytes, heard: bool) -> bool:
        for session in [one for one in self._sessions if one.gateway == gateway]:
            counter = _counter(turns.head(frame).low, max(session.last, 0))
            content = turns.opened(frame, session.key, counter)
            if content is None:
                continue
            turn = session.turns.get(counter)
            if turn is None:
                self._say("unsent", {"what": "TURN"})
                return True
            self._tell(session, turn, turn.sent)  # an answer shows that the gateway has it
            known = session.answers.get(counter)
            if known not in (None, frame):
                self._say("reused", {"direction": "down", "counter": counter})
            try:
                reply = turns.read_answer(content, turn.says)
            except (FrameError, PacketError) as error:
                session.connection.break_off("down", error)
                return True
            if known is None:
                session.answers[counter] = frame
                self._take(session, reply.packets)
            if heard and reply.utc is not None:
                self._say("time", {})
            return True
        return False

    def _take(self, session: _Session, packets: tuple[Packet, ...]) -> None:
        for packet in packets:
            if isinstance(packet, Answer) and packet.kind is Kind.PUBREC and not packet.refused:
                self.recorded.add(packet.id)
            session.connection.take("down", packet)


def _counter(low: int, near: int) -> int:
    """Return the counter that is nearest to `near` and whose low bits are `low`."""
    half = LOW_BITS // 2
    return (near + (low - near + half) % LOW_BITS - half) % COUNTERS
