"""Loss of frames by a recorded LoRa link.

In: a trace, and the time of a frame. Out: whether a link loses it, and how much of the recording
each link has used.

Each link begins at its own point of the recording, drawn from the seed and the link's name
(hil/traces/replay.py).
"""

from collections.abc import Iterator
from typing import Any

from hil.traces import LONGEST_OUTAGE
from hil.traces.replay import Replay
from hil.traces.trace import Trace


class Recorded:
    """Losses of a recorded link. pace: seconds of the recording per second of the ether; None: each
    frame has the fate of the recording's next frame. longest_outage: length to which longer outages
    are cut, in seconds of the ether; if `pace` is None, in frames.
    """

    def __init__(
        self,
        trace: Trace,
        seed: int,
        pace: float | None = None,
        longest_outage: float = LONGEST_OUTAGE,
    ) -> None:
        self._trace = trace
        self._seed = seed
        self._pace = pace
        self._longest = longest_outage
        self._links: dict[tuple[str, str], Replay] = {}

    def __call__(self, sender: str, receiver: str, now: float) -> bool:
        """Return whether the link loses a frame. now: seconds of the ether."""
        link = self._links.get((sender, receiver))
        if link is None:
            seed = f"{self._seed} {sender} {receiver}"
            link = Replay(self._trace, self._pace, seed, self._longest)
            self._links[sender, receiver] = link
        return not link.arrives(now)

    def summaries(self) -> Iterator[dict[str, Any]]:
        """Yield an entry for each link: its sender, its receiver and its `Replay` summary."""
        for (sender, receiver), link in self._links.items():
            yield {"from": sender, "to": receiver, **link.summary()}
