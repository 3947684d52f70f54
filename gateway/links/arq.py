"""Go-back-N retransmission for the two ends of the reliable link, without I/O and without a clock.

`SendWindow`: in, bytes of the MQTT stream and acknowledgements; out, pieces to put on the line now,
and the time of the next expiry. `ReceiveWindow`: in, numbered pieces; out, the stream in order,
each byte once. `RoundTrip` turns measured round trips into a timeout (RFC 6298 with Karn's rule;
limits from FORMAT.md). `Line` calculates when bytes written now will have left a slow line.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.links.frames import MAX_IN_FLIGHT, MODULO, MTU

TIMEOUT_MIN = 0.060
TIMEOUT_MAX = 1.0
TIMEOUT_INITIAL = 0.5
MAX_EXPIRIES = 8
"""The link gives up after this many consecutive expiries of its timer without an acknowledgement.
"""

FRAME_OVERHEAD = 5
"""Bytes of a DATA frame in addition to its payload: COBS, control, CRC-16, delimiter."""

_BITS_PER_BYTE = 10


class Line:
    """A model of the time that bytes take on a line that sends `baud` bits a second, ten for each
    byte. If `baud` is None, bytes take no time.
    """

    def __init__(self, baud: int | None = None) -> None:
        self.byte_time = _BITS_PER_BYTE / baud if baud else 0.0
        self._free_at = 0.0

    def send(self, length: int, now: float) -> float:
        """Queue `length` bytes on the line. Return the time at which the last byte leaves."""
        self._free_at = max(self._free_at, now) + length * self.byte_time
        return self._free_at


class RoundTrip:
    """Smoothed round-trip time and the retransmission timeout that follows from it, in seconds."""

    def __init__(self, byte_time: float) -> None:
        # An acknowledgement may wait for the longest frame of the other direction, so a slow line
        # raises the shortest timeout.
        self._floor = min(max(TIMEOUT_MIN, 2 * (MTU + FRAME_OVERHEAD) * byte_time), TIMEOUT_MAX)
        self._variation = 0.0
        self.smoothed: float | None = None
        self.timeout = TIMEOUT_INITIAL

    def sample(self, measured: float) -> None:
        """Add the measured round trip of a frame, in seconds. The caller follows Karn's rule: a
        frame that was sent more than once gives no sample.
        """
        if self.smoothed is None:
            self.smoothed = measured
            self._variation = measured / 2
        else:
            self._variation += (abs(measured - self.smoothed) - self._variation) / 4
            self.smoothed += (measured - self.smoothed) / 8
        self.timeout = min(max(self.smoothed + 4 * self._variation, self._floor), TIMEOUT_MAX)

    def back_off(self) -> None:
        """Double the timeout, up to TIMEOUT_MAX. Call this when it has expired. The next call of
        `sample` computes the timeout again.
        """
        self.timeout = min(2 * self.timeout, TIMEOUT_MAX)


@dataclass(slots=True)
class Piece:
    """The part of the stream in one DATA frame. sent_at: time at which the last byte of the frame
    is sent; set by the code that sends the piece. repeated: whether the piece is being sent again.
    """

    sequence: int
    payload: bytes
    sent_at: float = 0.0
    repeated: bool = False


class SendWindow:
    """The sending half of a reliable link. mtu: largest payload of a frame, in bytes. window:
    largest number of frames in flight. The peer has announced mtu and window. byte_time: seconds
    per byte on the line.
    """

    def __init__(self, mtu: int, window: int, byte_time: float) -> None:
        self._mtu = mtu
        self._window = min(window, MAX_IN_FLIGHT)
        self._queue = bytearray()
        self._pieces: deque[Piece] = deque()  # not acknowledged
        self._cursor = 0
        """Index in `_pieces` of the next piece to send."""
        self._next = 0
        self._repeated_for: int | None = None
        self.round_trip = RoundTrip(byte_time)
        self.expiries = 0
        self.retransmissions = 0
        self.unsent = 0
        """Number of bytes that the caller has written and the peer has not acknowledged."""

    def write(self, data: bytes) -> None:
        self._queue += data
        self.unsent += len(data)

    def due(self) -> Iterator[Piece]:
        """Yield the pieces to put on the line now. The caller sets `sent_at` of each piece."""
        while self._cursor < len(self._pieces) or (
            self._queue and len(self._pieces) < self._window
        ):
            if self._cursor == len(self._pieces):
                self._pieces.append(Piece(self._next, bytes(self._queue[: self._mtu])))
                del self._queue[: self._mtu]
                self._next = (self._next + 1) % MODULO
            else:
                self.retransmissions += self._pieces[self._cursor].repeated
            piece = self._pieces[self._cursor]
            self._cursor += 1
            yield piece

    def acknowledge(self, number: int, now: float, *, bare: bool) -> int:
        """Handle an acknowledgement, and return the number of bytes that it newly acknowledges.
        number: sequence number of the piece that the peer expects next. bare: whether the
        acknowledgement came in an ACK frame. A repeated number in an ACK frame means that the
        oldest piece in flight was lost. In a DATA frame it means nothing, because each DATA frame
        repeats the number.
        """
        if not self._pieces:
            return 0
        count = (number - self._pieces[0].sequence) % MODULO
        if count == 0:
            if bare and self._repeated_for != number:
                self._repeated_for = number
                self._step_back()
            return 0
        if count > len(self._pieces):
            return 0
        acknowledged = [self._pieces.popleft() for _ in range(count)]
        if not acknowledged[-1].repeated:
            self.round_trip.sample(max(now - acknowledged[-1].sent_at, 0.0))
        self._cursor = max(self._cursor - count, 0)
        self._repeated_for = None
        self.expiries = 0
        length = sum(len(piece.payload) for piece in acknowledged)
        self.unsent -= length
        return length

    @property
    def deadline(self) -> float | None:
        """Time at which the timeout of the oldest frame in flight ends; None without a frame."""
        return self._pieces[0].sent_at + self.round_trip.timeout if self._cursor else None

    def expire(self, now: float) -> bool:
        """If `deadline` has passed, let `due` yield all pieces in flight again. Return whether the
        link must give up.
        """
        deadline = self.deadline
        if deadline is None or now < deadline:
            return False
        self.expiries += 1
        self.round_trip.back_off()
        self._step_back()
        return self.expiries >= MAX_EXPIRIES

    def _step_back(self) -> None:
        for index in range(self._cursor):
            self._pieces[index].repeated = True
        self._cursor = 0


class ReceiveWindow:
    """The receiving half of a reliable link. It accepts only the next expected piece, and while it
    is paused, only as many pieces as fit into its buffer. room: size of the buffer, in bytes.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._undelivered = bytearray()
        self.expected = 0
        self.paused = False

    def take(self, sequence: int, payload: bytes) -> bytes | None:
        """Accept a piece if it is the expected one. Return the bytes to deliver, empty while
        paused; None if the piece is refused.
        """
        if sequence != self.expected:
            return None
        if self.paused:
            if len(self._undelivered) + len(payload) > self._room:
                return None
            self._undelivered += payload
            payload = b""
        self.expected = (sequence + 1) % MODULO
        return payload

    def resume(self) -> bytes:
        """End a pause. Return the bytes that arrived during the pause."""
        self.paused = False
        payload = bytes(self._undelivered)
        self._undelivered.clear()
        return payload
