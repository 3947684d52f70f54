"""A recorded link replayed on our frames: what the recording lost, is lost here, frame by frame.

In: the bytes of one direction, a trace, a pace, a seed. Out: the bytes of the frames that arrive,
and one harm per frame lost. A frame ends with a zero byte (gateway/links/README.md) and goes or
stays as a whole. Frame by frame, each of ours has the fate of the next one recorded; at a pace, the
fate of the one recorded at that moment, and in an outage none arrives. The recording begins a
little before one of its losses, drawn from the seed, since most recordings lose nothing for long;
it starts over at its end.
"""

import random
from bisect import bisect_right
from itertools import accumulate

from hil.traces.trace import Trace
from hil.wire.weather import Harm

DELIMITER = b"\0"
MOST_BEFORE = 100  # frames from the begin to a loss


class Fading:
    """pace: None for frame by frame, else seconds of the recording per second."""

    kinds = ("fade",)

    def __init__(self, trace: Trace, pace: float | None, seed: str) -> None:
        fates = list(trace.fates())
        if not any(arrived for _, arrived in fates):
            raise ValueError("nothing arrives in this trace")
        # an overtaken frame may have come later than the one after it
        self._times = list(accumulate((t for t, _ in fates), max))
        self._arrived = [arrived for _, arrived in fates]
        self._silences = [(outage.t, outage.t + outage.seconds) for outage in trace.outages()]
        self._pace = pace
        rng = random.Random(seed)
        losses = [frame for frame, arrived in enumerate(self._arrived) if not arrived]
        loss = rng.choice(losses) if losses else len(fates)
        self._frame = (loss - rng.randint(1, MOST_BEFORE)) % len(fates)
        self._begin = self._times[self._frame]
        self._start: float | None = None
        self._passed = 0
        self._lost: int | None = None  # offset of the frame that is being lost
        self._within = False  # a frame

    def feed(self, data: bytes, now: float) -> tuple[bytes, list[Harm]]:
        out = bytearray()
        harms = []
        for piece in _pieces(data):
            if not self._within:
                self._lost = None if self._next(now) else self._passed
                self._within = True
            self._passed += len(piece)
            if self._lost is None:
                out += piece
            if piece.endswith(DELIMITER):
                self._within = False
                if self._lost is not None:
                    harms.append(Harm(self._lost, "fade", length=self._passed - self._lost))
        return bytes(out), harms

    def _next(self, now: float) -> bool:
        """Whether the frame that begins now arrives."""
        if self._pace is None:
            self._frame = (self._frame + 1) % len(self._arrived)
            return self._arrived[self._frame]
        self._start = now if self._start is None else self._start
        t = self._begin + (now - self._start) * self._pace
        t = t % self._times[-1] if self._times[-1] > 0 else 0.0
        if any(start < t < end for start, end in self._silences):
            return False
        return self._arrived[max(0, bisect_right(self._times, t) - 1)]


def _pieces(data: bytes) -> list[bytes]:
    """`data`, cut after each delimiter."""
    *whole, rest = data.split(DELIMITER)
    return [piece + DELIMITER for piece in whole] + ([rest] if rest else [])
