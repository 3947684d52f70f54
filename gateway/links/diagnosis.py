"""Says, once, what is wrong with a port on which nobody speaks the link.

In: what a port received while no frame of it was intact. Out: one sentence for the log, or nothing.
"""

import string

_ENOUGH = 256
"""Bytes without a single intact frame that a greeting device never sends."""

_TEXT = frozenset(string.printable.encode())
_TEXT_SHARE = 0.9
_EXCERPT = 40


class Diagnosis:
    """Watches one port from its opening until the first intact frame, or until it has spoken."""

    def __init__(self, baud: int) -> None:
        self._baud = baud
        self._sample = bytearray()
        self._done = False

    def intact_frame(self) -> None:
        self._done = True
        self._sample.clear()

    def bytes_received(self, data: bytes) -> str | None:
        """Take bytes without an intact frame among them; return a sentence when they are enough to judge."""
        if self._done:
            return None
        self._sample += data[:_ENOUGH]
        if len(self._sample) < _ENOUGH:
            return None
        verdict = self._judge()
        self._done = True
        self._sample.clear()
        return verdict

    def _judge(self) -> str:
        text = sum(byte in _TEXT for byte in self._sample)
        if text >= _TEXT_SHARE * len(self._sample):
            excerpt = " ".join(self._sample.decode("ascii", "replace").split())[:_EXCERPT]
            return f"sends text and no frames of the reliable link ({excerpt!r}): flash it with Onceway's firmware library"
        return f"sends no frames of the reliable link: it speaks another protocol, or at another rate than {self._baud} baud"
