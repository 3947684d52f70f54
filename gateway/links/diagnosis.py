"""Says, once, what is wrong with a port on which nobody speaks the link.

In: what a port received while no frame of it was intact. Out: one sentence for the log, or nothing.
"""

import string

_ENOUGH = 256
"""Bytes without a single intact frame that a greeting device never sends."""
_FEW = 8
_LONG_S = 10.0
"""At a rate far too low few bytes come of each greeting. Some of them, and this long no intact
frame: that will do, too.
"""

_TEXT = frozenset(string.printable.encode())
_TEXT_SHARE = 0.9
_EXCERPT = 40


class Diagnosis:
    """Watches one port from its opening until the first intact frame, or until it has spoken."""

    def __init__(self, baud: int) -> None:
        self._baud = baud
        self._sample = bytearray()
        self._done = False
        self._began: float | None = None

    def intact_frame(self) -> None:
        self._done = True
        self._sample.clear()

    def bytes_received(self, data: bytes, now: float) -> str | None:
        """Take bytes without an intact frame among them; return a sentence when they are enough to
        judge.
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
                f"sends text and no frames of the reliable link ({excerpt!r}): flash it with"
                " Onceway's firmware library"
            )
        return (
            "sends no frames of the reliable link: it speaks another protocol, or at another rate"
            f" than {self._baud} baud"
        )
