"""A RYLR998: a LoRa modem on a UART that takes AT commands (Reyax, "LoRa AT command guide", 2023).

In: bytes of its port, frames to send. Out: bytes for the port, events of `radio.py`. The modem adds
eight bytes of its own to each frame. Only modems of this kind understand such a frame, and the
airtime includes these bytes. The modem's own network number is always 18, because the preamble can
be chosen only with 18; the configured `network` is in the frames of the turn link.

Data may contain any byte, CR LF included, so the length in `+RCV` says where the data end. The
modem may send `+ERR` without a command. It answers a frame with `+OK`, but the guide does not say
when. So the modem counts as sending until `+OK` has arrived and the frame's airtime is over. The
settings are in flash memory: they are read first, and only different settings are written.
"""

import re
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import Literal

from gateway.links.lora.airtime import Modulation
from gateway.links.lora.exchange import Radio as Kind
from gateway.links.lora.exchange import extra
from gateway.links.lora.radio import Event, Failed, Heard, Ready, Sent

ERRORS = {
    1: "that a command does not end with CR LF",
    2: "that a command does not begin with AT",
    4: "that it does not know a command",
    5: "that a length is not that of the data",
    10: "that sending took too long",
    12: "that a frame arrived damaged",
    13: "that a frame has more than 240 bytes",
    14: "that its flash memory cannot be written",
    15: "that it failed for an unknown reason",
    17: "that it is sending already",
    18: "that it cannot accept the preamble",
    19: "that the header of a frame arrived damaged",
    20: "that it cannot accept the time to sleep",
}

OF_RECEPTION = (12, 19)
"""Codes of errors about a received frame. The modem sends them without a command."""

LONGEST_FRAME = 240
"""Largest number of bytes of a turn link frame that the modem can send."""

LONGEST_LINE = 64
"""Largest number of bytes of a line, except for `+RCV` lines."""

ANSWER_WAIT = 1.0
"""Seconds to wait for an answer. For the +OK to a frame, the frame's airtime is added."""

LOOK_EVERY = 30.0
GAP = 0.5
"""Seconds without a byte, after which the gateway no longer waits for the rest of a line."""

EVERYBODY, NETWORK, BANDWIDTH = 0, 18, 7
_UART = 10 / 115_200
"""Seconds per byte on the line."""

_HEAD = re.compile(rb"\+RCV=(\d{1,5}),(\d{1,3}),")
_HEAD_SO_FAR = re.compile(rb"\+(R(C(V(=(\d{1,5}(,\d{0,3})?)?)?)?)?)?")
_TAIL = re.compile(rb",(-?\d{1,4}),(-?\d{1,3})\r\n")
_TAIL_SO_FAR = re.compile(rb"(,(-?\d{0,4}(,(-?\d{0,3}\r?)?)?)?)?")
_ERROR = re.compile(rb"\+ERR=(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the modem, without CR LF."""

    text: bytes


@dataclass(frozen=True, slots=True)
class Received:
    """A frame of another modem of this kind. rssi: dBm. snr: dB."""

    data: bytes
    rssi: int
    snr: int


class Decoder:
    """A decoder that splits a stream of bytes into lines and frames. Broken items are dropped, and
    counted in `broken`.
    """

    def __init__(self) -> None:
        self.broken = 0
        self._data = b""
        self._at = float("-inf")

    def feed(self, data: bytes, now: float) -> list[Line | Received]:
        if self._data and now > self._at + GAP:
            self._data = b""
            self.broken += 1
        self._data += data
        self._at = now
        found: list[Line | Received] = []
        while (one := self._next()) is not None:
            found += [one] if one is not False else []
        return found

    def _next(self) -> "Line | Received | Literal[False] | None":
        """Return the next item; False if something was dropped; None if more bytes are needed."""
        if head := _HEAD.match(self._data):
            end = head.end() + int(head[2])
            if tail := _TAIL.match(self._data, end):
                data, self._data = self._data[head.end() : end], self._data[tail.end() :]
                return Received(data, int(tail[1]), int(tail[2]))
            if int(head[2]) <= LONGEST_FRAME and _TAIL_SO_FAR.fullmatch(self._data, end):
                return None
        elif _HEAD_SO_FAR.fullmatch(self._data):
            return None
        line, found, rest = self._data.partition(b"\r\n")
        if not found and len(line) <= LONGEST_LINE:
            return None
        self._data = rest
        if len(line) > LONGEST_LINE or line.startswith(b"+RCV"):
            self.broken += 1
            return False
        return Line(line) if line else False


@dataclass(frozen=True, slots=True)
class _Step:
    """A command, and the beginning of its answer. query: the command in words, for error texts.
    wanted: the required answer; empty if any answer will do. tell: the command that sets the
    required value.
    """

    query: str
    command: bytes
    answer: bytes = b"+OK"
    wanted: bytes = b""
    tell: bytes = b""


def _setting(name_text: str, name: bytes, value: str) -> _Step:
    wanted = b"+" + name + b"=" + value.encode()
    return _Step(name_text, b"AT+" + name + b"?", b"+" + name + b"=", wanted, b"AT" + wanted)


class Rylr998:
    """A RYLR998 modem, which implements `Radio`. frequency: Hz. modulation: the modulation of all
    stations. power: dBm.
    """

    longest = LONGEST_FRAME

    def __init__(self, frequency: int, modulation: Modulation, power: int) -> None:
        self._modulation = modulation
        self.counts: Counter[str] = Counter()
        parameters = f"{modulation.factor},{BANDWIDTH},{modulation.coding},{modulation.preamble}"
        self._channel = (
            _setting("for its frequency", b"BAND", str(frequency)),
            _setting("for its spreading factor", b"PARAMETER", parameters),
        )
        self._settings = (
            _Step("whether it is there", b"AT"),
            _Step("for its version", b"AT+VER?", b"+VER="),
            _setting("for its network", b"NETWORKID", str(NETWORK)),
            *self._channel,
            _setting("for its power", b"CRFOP", str(power)),
        )
        self._decoder = Decoder()
        self._outgoing: list[bytes] = []
        self._steps: deque[_Step] = deque()
        self._asked: float | None = None
        """Time of the last command that is not answered yet; None if no answer is expected."""
        self._look_at: float | None = None
        self._done_by: float | None = None
        self._leaves: float | None = None
        """Calculated end of the current frame; None if no frame is being sent."""
        self._accepted = False
        """Whether the modem has answered +OK to the current frame."""
        self._version = ""
        self.ready = False

    def open(self, now: float) -> None:
        self._decoder = Decoder()
        self._outgoing = []
        self._done_by = self._leaves = self._look_at = None
        self._accepted = self.ready = False
        self._steps = deque(self._settings)
        self._ask(now)

    def receive(self, data: bytes, now: float) -> list[Event]:
        events: list[Event] = []
        before = self._decoder.broken
        for one in self._decoder.feed(data, now):
            match one:
                case Received(frame, rssi, snr):
                    events.append(Heard(frame, now, float(rssi), float(snr)))
                case Line(text):
                    events += self._on_line(text, now)
        if broken := self._decoder.broken - before:
            self.counts["broken by the modem"] += broken
        return events

    def tick(self, now: float) -> list[Event]:
        if self._asked is not None and now >= self._asked + ANSWER_WAIT:
            return self._fail(
                f"no RYLR998 answers (asked {self._steps[0].query}): is it wired to this port, and"
                " set to 115200 baud?"
            )
        if self._leaves is not None and self._accepted and now >= self._leaves:
            return self._sent(now, True)
        if self._done_by is not None and now >= self._done_by:
            return self._fail("the modem hangs: it has not reported that it accepted a frame")
        if self._look_at is not None and now >= self._look_at and self.idle:
            self._look_at = None
            self._steps.extend(self._channel)
            self._ask(now)
        return []

    def take(self) -> bytes:
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def send(self, frame: bytes, now: float) -> None:
        if not self.idle:
            raise RuntimeError("the modem is not ready, or is sending")
        command = b"AT+SEND=%d,%d,%b\r\n" % (EVERYBODY, len(frame), frame)
        self._outgoing.append(command)
        self._leaves = now + self.airtime(len(frame)) + _UART * len(command)
        self._done_by = self._leaves + ANSWER_WAIT
        self._accepted = False

    def airtime(self, length: int) -> float:
        return self._modulation.airtime(length + extra(Kind.RYLR998))

    @property
    def idle(self) -> bool:
        return self.ready and self._leaves is None and not self._steps

    @property
    def deadline(self) -> float | None:
        moments = [self._look_at if self.idle else None]
        moments.append(self._leaves if self._accepted else self._done_by)
        if self._asked is not None:
            moments.append(self._asked + ANSWER_WAIT)
        return min((moment for moment in moments if moment is not None), default=None)

    def _ask(self, now: float) -> None:
        self._outgoing.append(self._steps[0].command + b"\r\n")
        self._asked = now

    def _fail(self, reason: str) -> list[Event]:
        self.ready = self._accepted = False
        self._steps.clear()
        self._asked = self._done_by = self._leaves = self._look_at = None
        return [Failed(reason)]

    def _sent(self, now: float, done: bool) -> list[Event]:
        self._done_by = self._leaves = None
        self._accepted = False
        return [Sent(now, done)]

    def _on_line(self, text: bytes, now: float) -> list[Event]:
        if error := _ERROR.fullmatch(text):
            return self._on_error(int(error[1]), now)
        if self._steps and text.startswith(self._steps[0].answer):
            return self._on_answer(text, now)
        if text == b"+OK":
            if self._leaves is not None:
                self._accepted = True
                return self.tick(now) if now >= self._leaves else []
        elif text == b"+READY" and self.ready:
            return self._fail("the modem was reset")
        elif text != b"+READY":
            self.counts["strange from the modem"] += 1
            if b"\xc0" in text and not self.ready:
                return self._fail('the modem speaks KISS: write modem = "kiss" in [[lora]]')
        return []

    def _on_answer(self, text: bytes, now: float) -> list[Event]:
        step = self._steps.popleft()
        self._asked = None
        if step.wanted and text != step.wanted:
            if self.ready:
                return self._fail(
                    f"the modem says {_words(text)}, but was set to {_words(step.wanted)}"
                )
            if not step.tell:
                return self._fail(
                    f"the modem does not accept {_words(step.wanted)}: it says {_words(text)}"
                )
            retry = _Step(f"{step.query}, with {_words(step.tell)}", step.tell)
            self._steps.extendleft((replace(step, tell=b""), retry))
        if step.answer == b"+VER=":
            self._version = f"RYLR998, firmware {_words(text.removeprefix(step.answer))}"
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
        if code in OF_RECEPTION or not (self._steps or self._leaves is not None):
            self.counts[f"the modem says {words}"] += 1
            return []
        if self._steps:
            return self._fail(f"asked {self._steps[0].query}, the modem says {words}")
        self.counts[f"the modem says {words}"] += 1
        return self._sent(now, False)


def _words(text: bytes) -> str:
    """Return a modem's text in ASCII, for the log."""
    return text.decode("ascii", "backslashreplace")
