"""Diagnosis of a serial port: no device sends a HELLO, a sketch prints, or a board restarts
repeatedly.

In: received bytes of the port, and whether its frames were damaged. Out: one sentence for the log,
or None.
"""

import re
import string
from collections import deque

_ENOUGH = 256
"""If this many bytes contain no intact frame, the line or the device counts as faulty."""
_FEW = 8
_LONG_S = 10.0
"""After this many seconds without an intact frame, `_FEW` bytes are enough to judge: if the baud
rate is far too low, only few bytes of each HELLO arrive.
"""

_TEXT = frozenset(string.printable.encode())
_TEXT_SHARE = 0.9
_EXCERPT = 40

_STARTS = 5
_WITHIN_S = 3600.0
_SOON_S = 60.0
"""A series of restarts counts as ended after this many seconds without a start. If the series
lasted longer than this, it counts as ended after a time without a start that is as long as the
series.
"""
_BY_POWER = "its supply fails. Check the cable, the supply and what else it feeds"
BY_WATCHDOG = (
    "The watchdog resets a board whose loop() takes more than 2 s without ow_mqtt_poll: look for a"
    " delay() or code that waits for a sensor. Other causes: a crash, or the reset button"
)
_BY_RESET = f"each start is a reset, not a failed supply. {BY_WATCHDOG}"

_LINES = 3
"""If input with damaged frames has this many printed texts, the sketch counts as printing."""
_LINE = re.compile(rb"[\t -~]{2,}\r?\n")
_PRINTED = re.compile(rb"[\t\r\n -~]{3,}")
"""Pattern of printed text between two zero bytes: all its bytes are printable. A frame also
contains unprintable bytes, in its COBS codes and its CRC.
"""
_LONGEST = 256


class Diagnosis:
    """The diagnosis of one port, from its opening until the first intact frame or the first
    result.
    """

    def __init__(self, baud: int) -> None:
        self._baud = baud
        self._sample = bytearray()
        self._done = False
        self._began: float | None = None

    def intact_frame(self) -> None:
        self._done = True
        self._sample.clear()

    def bytes_received(self, data: bytes, now: float) -> str | None:
        """Take bytes that arrived outside intact frames. Return a diagnosis, a sentence, once: when
        _ENOUGH bytes have arrived, or when _LONG_S seconds are over and at least _FEW bytes have
        arrived. Return None in all other calls, and in every call after an intact frame. now:
        monotonic time in seconds.
        """
        if self._done:
            return None
        if self._began is None:
            self._began = now
        self._sample += data[:_ENOUGH]
        long_enough = len(self._sample) >= _FEW and now - self._began >= _LONG_S
        if len(self._sample) < _ENOUGH and not long_enough:
            return None
        verdict = self._judge()
        self._done = True
        self._sample.clear()
        return verdict

    def _judge(self) -> str:
        text = sum(byte in _TEXT for byte in self._sample)
        if text >= _TEXT_SHARE * len(self._sample):
            excerpt = " ".join(self._sample.decode("ascii", "replace").split())[:_EXCERPT]
            return (
                f"sends text and no frames of the reliable link ({excerpt!r}): flash a sketch"
                " that uses Onceway's firmware library"
            )
        return (
            "sends no frames of the reliable link: it speaks another protocol, or at another rate"
            f" than {self._baud} baud"
        )


class PrintedText:
    """The search for text that a sketch prints, with `Serial.print` or `Serial.println`, to the
    port that carries the frames.
    """

    def __init__(self) -> None:
        self._lines = 0
        self._rest = b""
        self.verdict: str | None = None

    def bytes_received(self, data: bytes, damaged: bool) -> str | None:
        """Take received bytes. Return a sentence when it becomes clear that the sketch prints, and
        None at all other times. damaged: whether a frame was damaged since the last call.
        """
        *pieces, rest = (self._rest + data).split(b"\0")
        self._rest = rest[-_LONGEST:]
        found = _LINE.findall(data) or [one for one in pieces if _PRINTED.fullmatch(one)]
        if not damaged or not found or self._lines >= _LINES:
            return None
        self._lines += len(found)
        if self._lines < _LINES:
            return None
        excerpt = " ".join(max(found, key=len).decode("ascii").split())[:_EXCERPT]
        self.verdict = (
            f"its sketch prints to the link's own UART ({excerpt!r}), which damages frames: take"
            " Serial.print out, and call ow_log instead, whose lines `onceway device log` shows"
        )
        return self.verdict


class Restarts:
    """The search for a board on one port that restarts repeatedly: every 3 s because its loop
    always blocks, or every 10 minutes because one of its sensors sometimes blocks it.
    """

    def __init__(self) -> None:
        self._starts: deque[float] = deque(maxlen=_STARTS)
        self._boot: int | None = None
        self._power_on = False
        self.count = 0

    def started(self, boot: int, power_on: bool, now: float) -> None:
        """Note a HELLO of the board. boot: the number of its start. now: monotonic time in
        seconds.
        """
        if boot != self._boot:
            self._boot, self._power_on = boot, power_on
            self._starts.append(now)
            self.count += 1

    def verdict(self, now: float) -> str | None:
        """Return a sentence if the board keeps restarting; None otherwise."""
        if len(self._starts) < _STARTS:
            return None
        lasted = self._starts[-1] - self._starts[0]
        if lasted > _WITHIN_S or now - self._starts[-1] > max(lasted, _SOON_S):
            return None
        span = f"{lasted:.0f} s" if lasted < 2 * _SOON_S else f"{lasted / 60:.0f} minutes"
        return f"the board starts again and again ({_STARTS} times in {span}): " + (
            _BY_POWER if self._power_on else _BY_RESET
        )
