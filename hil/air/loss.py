"""Loss by a recorded LoRa link. In: a trace, and the time of a frame. Out: whether a link loses it.

Frame by frame, each frame of a link has the fate of the next one recorded, and bursts are as long
as they were, in frames. With a pace the recording goes by in time, and outages are as long as they
were: who waits meanwhile does not make them longer. Each link begins elsewhere in the recording,
drawn from the seed and its name, at a frame that arrived; it starts over at its end.
"""

import random
from bisect import bisect_right

from hil.traces.trace import Trace


class Recorded:
    """pace: seconds of the recording in one of the ether; None: frame by frame. Raises ValueError:
    nothing arrives in this trace.
    """

    def __init__(self, trace: Trace, seed: int, pace: float | None = None) -> None:
        fates = list(trace.fates())
        self._times = [t for t, _ in fates]
        self._arrived = [arrived for _, arrived in fates]
        if True not in self._arrived:
            raise ValueError("nothing arrives in this trace")
        self._seed = seed
        self._pace = pace
        self._at: dict[tuple[str, str], int] = {}
        """Where each link is in it, or with a pace where it began."""
        self.lost = 0

    def __call__(self, sender: str, receiver: str, now: float) -> bool:
        """now: seconds of the ether."""
        link = sender, receiver
        at = self._at.get(link)
        if at is None:
            draw = random.Random(f"{self._seed} {sender} {receiver}")
            begins = [number for number, arrived in enumerate(self._arrived) if arrived]
            at = self._at[link] = draw.choice(begins)
        if self._pace is None:
            self._at[link] = (at + 1) % len(self._arrived)
        else:
            at = self._now(at, now * self._pace)
        self.lost += not self._arrived[at]
        return not self._arrived[at]

    def _now(self, began: int, passed: float) -> int:
        """The last one recorded by then."""
        first, last = self._times[0], self._times[-1]
        if last == first:
            return began
        t = first + (self._times[began] - first + passed) % (last - first)
        return bisect_right(self._times, t) - 1
