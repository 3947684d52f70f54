"""Loss by a recorded LoRa link: each frame of a link has the fate of the next one recorded.

In: a trace. Out: whether a link loses its next frame. Each link begins elsewhere in the recording,
drawn from the seed and its name, at a frame that arrived; it starts over at its end.
"""

import random

from hil.traces.trace import Trace


class Recorded:
    """Raises ValueError: nothing arrives in this trace."""

    def __init__(self, trace: Trace, seed: int) -> None:
        self._arrived = [arrived for _, arrived in trace.fates()]
        if True not in self._arrived:
            raise ValueError("nothing arrives in this trace")
        self._seed = seed
        self._at: dict[tuple[str, str], int] = {}
        self.lost = 0

    def __call__(self, sender: str, receiver: str) -> bool:
        link = sender, receiver
        at = self._at.get(link)
        if at is None:
            draw = random.Random(f"{self._seed} {sender} {receiver}")
            begins = [number for number, arrived in enumerate(self._arrived) if arrived]
            at = draw.choice(begins)
        self._at[link] = (at + 1) % len(self._arrived)
        self.lost += not self._arrived[at]
        return not self._arrived[at]
