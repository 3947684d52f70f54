"""A recorded link replayed on the frames of a line. In: the bytes of one direction, and a
recording's replay. Out: the bytes of the frames that arrive, and one harm per lost frame. A frame
ends with a zero byte (gateway/links/FORMAT.md) and arrives or is lost as a whole.
"""

from typing import Any

from hil.traces import LONGEST_OUTAGE
from hil.traces.replay import Replay
from hil.traces.trace import Trace
from hil.wire.noise import Harm

DELIMITER = b"\0"


class Fading:
    """A recorded link as a fault of a line for a whole run. pace, longest_outage: see `Replay`."""

    kinds = ("fade",)

    def __init__(
        self,
        trace: Trace,
        pace: float | None,
        seed: str,
        longest_outage: float = LONGEST_OUTAGE,
    ) -> None:
        self.replay = Replay(trace, pace, seed, longest_outage)
        self._offset = 0
        self._lost: int | None = None  # offset of the frame that is being lost
        self._within = False  # within a frame

    def feed(self, data: bytes, now: float) -> tuple[bytes, list[Harm]]:
        self.replay.pass_to(now)
        out = bytearray()
        harms = []
        for piece in _pieces(data):
            if not self._within:
                self._lost = None if self.replay.arrives(now) else self._offset
                self._within = True
            self._offset += len(piece)
            if self._lost is None:
                out += piece
            if piece.endswith(DELIMITER):
                self._within = False
                if self._lost is not None:
                    harms.append(Harm(self._lost, "fade", length=self._offset - self._lost))
        return bytes(out), harms

    def summary(self) -> dict[str, Any]:
        return self.replay.summary()


def _pieces(data: bytes) -> list[bytes]:
    """Return `data`, cut after each delimiter."""
    *whole, rest = data.split(DELIMITER)
    return [piece + DELIMITER for piece in whole] + ([rest] if rest else [])
