"""A KISS modem: a LoRa board with MeshCore's modem firmware, over USB.

In: bytes of its port, frames to send. Out: bytes for the port, events of `radio.py`. The protocol
is KISS (Chepponis and Karn, 1987) with the extensions of MeshCore's docs/kiss_modem_protocol.md;
its numbers are little-endian.

By default the modem's firmware waits half a second and listens before it sends. Both are switched
off, since a board listens for only one second. The modem's firmware chooses its preamble itself;
the airtime includes this preamble. A reset modem loses its settings without a message, so they are
read back every half minute.
"""

import struct
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.links.lora.airtime import LONGEST, Modulation
from gateway.links.lora.exchange import Radio as Kind
from gateway.links.lora.exchange import preamble
from gateway.links.lora.radio import Event, Failed, Heard, Ready, Sent

FEND, FESC, TFEND, TFESC = 0xC0, 0xDB, 0xDC, 0xDD
DATA, TX_DELAY, FULL_DUPLEX, HARDWARE = 0x00, 0x01, 0x05, 0x06
SET_RADIO, SET_POWER, GET_RADIO, GET_VERSION, SET_SIGNAL_REPORT = 0x09, 0x0A, 0x0B, 0x11, 0x19
OK, ERROR, TX_DONE, RX_META = 0xF0, 0xF1, 0xF8, 0xF9
RADIO, VERSION, SIGNAL_REPORT = 0x8B, 0x91, 0x9A

BUSY = 7
"""Response BUSY. It does not say whether the current frame will be sent. Only the response TX_DONE,
which the modem never drops, says that the frame was sent.
"""

ERRORS = {
    1: "that the request is too short",
    2: "that it cannot accept the value",
    3: "that its hardware lacks this feature",
    5: "that its firmware does not know the request",
    BUSY: "that it is sending already, or that the gateway reads its answers too slowly",
    8: "that it does not support the request",
}

LARGEST = 512
"""Largest number of bytes of a KISS frame, without escapes."""

ANSWER_WAIT = 1.0
"""Seconds to wait for an answer; for TX_DONE, in addition to the frame's airtime."""

ASKS = 3
"""Largest number of attempts of one request. A modem with a full queue silently drops answers."""

LOOK_EVERY = 30.0
META_WAIT = 0.1
"""Seconds for which a received frame waits for its signal strength, which the modem sends next."""

_RADIO = struct.Struct("<IIBB")
_META = struct.Struct("<bb")


def encode(kind: int, data: bytes) -> bytes:
    """Return a KISS frame of this type, with escapes and delimiters."""
    escaped = data.replace(bytes((FESC,)), bytes((FESC, TFESC)))
    return bytes((FEND, kind)) + escaped.replace(b"\xc0", bytes((FESC, TFEND))) + bytes((FEND,))


class Decoder:
    """A decoder that splits a stream of bytes into KISS frames. Broken frames are dropped, and
    counted in `broken`.
    """

    def __init__(self) -> None:
        self.broken = 0
        self._data = bytearray()
        self._bad = True  # until the first delimiter

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield type and content of each complete frame, without escapes."""
        for byte in data:
            if byte == FEND:
                found, bad = bytes(self._data), self._bad
                self._data.clear()
                self._bad = False
                if bad:
                    self.broken += bool(found)
                elif found and (plain := self._plain(found)) is not None:
                    yield plain[0], plain[1:]
            elif len(self._data) < 2 * LARGEST:
                self._data.append(byte)
            else:
                self._bad = True

    def _plain(self, escaped: bytes) -> bytes | None:
        first, *rest = escaped.split(bytes((FESC,)))
        plain = bytearray(first)
        for part in rest:
            if part[:1] not in (bytes((TFEND,)), bytes((TFESC,))):
                self.broken += 1
                return None
            plain.append(FEND if part[0] == TFEND else FESC)
            plain += part[1:]
        if len(plain) > LARGEST:
            self.broken += 1
            return None
        return bytes(plain)


@dataclass(frozen=True, slots=True)
class _Step:
    """A request, and the type of its answer. query: the request in words, for error texts."""

    query: str
    request: bytes
    answer: int


class KissModem:
    """A KISS modem, which implements `Radio`. frequency: Hz. modulation: as in the boards' frames.
    The modem's own frames differ in the preamble, which its firmware chooses. power: dBm.
    """

    longest = LONGEST

    def __init__(self, frequency: int, modulation: Modulation, power: int) -> None:
        factor = modulation.factor
        self.counts: Counter[str] = Counter()
        self._own = Modulation(
            factor, modulation.bandwidth, modulation.coding, preamble(Kind.KISS, factor)
        )
        self._settings = _RADIO.pack(frequency, modulation.bandwidth, factor, 4 + modulation.coding)
        self._power = power
        self._decoder = Decoder()
        self._outgoing: list[bytes] = []
        self._steps: deque[_Step] = deque()
        self._asked: float | None = None
        """Time of the last request that is not answered yet; None if no answer is expected."""
        self._asks = 0
        """Number of attempts of the current request."""
        self._look_at: float | None = None
        self._done_by: float | None = None
        self._busy = False
        """Whether the modem has answered BUSY since the current frame was given to it."""
        self._heard: Heard | None = None
        self._version = ""
        self._probed = False
        self.ready = False

    def open(self, now: float) -> None:
        self._decoder = Decoder()
        self._outgoing = [encode(FULL_DUPLEX, b"\x01"), encode(TX_DELAY, b"\x00")]
        self._done_by = self._heard = self._look_at = None
        self.ready = self._probed = False
        self._steps = deque(
            (
                _Step("for its version", bytes((GET_VERSION,)), VERSION),
                _Step("to use this channel", bytes((SET_RADIO,)) + self._settings, OK),
                _Step(
                    f"to send with {self._power} dBm", bytes((SET_POWER, self._power & 0xFF)), OK
                ),
                _Step("for signal strengths", bytes((SET_SIGNAL_REPORT, 1)), SIGNAL_REPORT),
                _Step("for its channel", bytes((GET_RADIO,)), RADIO),
            )
        )
        self._ask(now)

    def receive(self, data: bytes, now: float) -> list[Event]:
        events: list[Event] = []
        before = self._decoder.broken
        for kind, content in self._decoder.feed(data):
            if kind == DATA and len(content) <= LONGEST:
                events += self._flush()
                self._heard = Heard(content, now)
            elif kind == HARDWARE and content:
                events += self._on_hardware(content[0], content[1:], now)
            else:
                self.counts["strange from the modem"] += 1
        if broken := self._decoder.broken - before:
            self.counts["broken by the modem"] += broken
        if self._probed and not self.ready and (b"+ERR=" in data or b"+OK" in data):
            events += self._fail(
                'the modem accepts AT commands: write modem = "rylr998" in [[lora]]'
            )
        return events

    def tick(self, now: float) -> list[Event]:
        events: list[Event] = []
        if self._heard is not None and now >= self._heard.at + META_WAIT:
            events += self._flush()
        unanswered = self._asked is not None and now >= self._asked + ANSWER_WAIT
        if unanswered and not self._probed and not self.ready:
            self._probed = True
            self._asked = now
            self._outgoing.append(b"\r\nAT\r\n")  # detect a modem of another kind
        elif unanswered and self._asks < ASKS:
            self._ask(now, again=True)
        elif unanswered:
            events += self._fail(
                f"no KISS modem answers (asked {self._steps[0].query}): is it plugged in, and does"
                " it have MeshCore's KISS modem firmware?"
            )
        elif self._done_by is not None and now >= self._done_by:
            if self._busy:
                self._done_by = None
                events.append(Sent(now, False))
            else:
                events += self._fail("the modem hangs: it has not reported that a frame was sent")
        elif self._look_at is not None and now >= self._look_at and self._asked is None:
            self._look_at = None
            self._steps.append(_Step("for its channel", bytes((GET_RADIO,)), RADIO))
            self._ask(now)
        return events

    def take(self) -> bytes:
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def send(self, frame: bytes, now: float) -> None:
        if not self.idle:
            raise RuntimeError("the modem is not ready, or is sending")
        self._outgoing.append(encode(DATA, frame))
        self._done_by = now + self.airtime(len(frame)) + ANSWER_WAIT
        self._busy = False

    def airtime(self, length: int) -> float:
        return self._own.airtime(length)

    @property
    def idle(self) -> bool:
        return self.ready and self._done_by is None

    @property
    def deadline(self) -> float | None:
        moments = [self._done_by, self._look_at]
        if self._asked is not None:
            moments.append(self._asked + ANSWER_WAIT)
        if self._heard is not None:
            moments.append(self._heard.at + META_WAIT)
        return min((moment for moment in moments if moment is not None), default=None)

    def _ask(self, now: float, *, again: bool = False) -> None:
        self._asks = self._asks + 1 if again else 1
        self._outgoing.append(encode(HARDWARE, self._steps[0].request))
        self._asked = now

    def _flush(self) -> list[Event]:
        heard, self._heard = self._heard, None
        return [heard] if heard is not None else []

    def _fail(self, reason: str) -> list[Event]:
        self.ready = False
        self._steps.clear()
        self._asked = self._done_by = self._look_at = None
        return [*self._flush(), Failed(reason)]

    def _on_hardware(self, kind: int, data: bytes, now: float) -> list[Event]:
        if kind == RX_META and len(data) >= _META.size and self._heard is not None:
            snr, rssi = _META.unpack_from(data)
            self._heard = Heard(self._heard.frame, self._heard.at, float(rssi), snr / 4)
            return self._flush()
        if kind == TX_DONE and data and self._done_by is not None:
            self._done_by = None
            return [Sent(now, data[0] == 1)]
        if self._steps and kind == self._steps[0].answer:
            return self._on_answer(kind, data, now)
        if kind == ERROR and data:
            return self._on_error(data[0], now)
        return []

    def _on_answer(self, kind: int, data: bytes, now: float) -> list[Event]:
        self._steps.popleft()
        self._asked = None
        if kind == VERSION and data:
            self._version = f"KISS modem, firmware {data[0]}"
        if kind == RADIO and data != self._settings:
            return self._fail(
                "the modem was reset: it is on a channel other than the configured one"
                if self.ready
                else "the modem does not accept the configured channel"
            )
        if self._steps:
            self._ask(now)
            return []
        self._look_at = now + LOOK_EVERY
        if self.ready:
            return []
        self.ready = True
        return [Ready(self._version)]

    def _on_error(self, code: int, now: float) -> list[Event]:
        words = ERRORS.get(code, f"error {code}")
        if self._steps and code != BUSY:
            return self._fail(f"asked {self._steps[0].query}, the modem says {words}")
        self.counts[f"the modem says {words}"] += 1
        if code == BUSY:
            self._busy = True
        elif self._done_by is not None:
            self._done_by = None
            return [Sent(now, False)]
        return []
