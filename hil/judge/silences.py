"""Finds the times when a gateway of a site could not reach another one, so that its answers to
clients about their sessions were suspect.

In: a history. Out: whether a session may have begun without the messages in flight.

A gateway to which a client connects asks the other gateways for the client's session. If a gateway
is silent, the asking gateway begins a new session, or drops the packet identifiers of its own
session: new messages must not count as known (gateway/site/README.md). The client's next gateway
may do the same, and then the client has two sessions. A board that lost its power before the answer
to its HELLO does not even know of the first session. Without packet identifiers, messages on their
way to another gateway arrive twice. With one gateway, no session is suspect.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hil.observe.history import Event, taking

FOR_EVER = "gateway dies for good"
"""Name of the fault after which a gateway stays silent for good. The others still query it."""
SILENCING = (
    "gateways cut off from each other",
    "gateways restarted in turn",
    "gateway slow to answer",
    FOR_EVER,
    "gateway paused",
    "kill -9 of the gateway",
    "slow fsync",
    "disk full",
)
"""Kinds of faults, by their names in a history, during which a gateway may be silent."""
SETTLES = 3_000_000_000
"""Time in ns for which a gateway may still be silent after a fault in SILENCING has ended."""
FAR = 1 << 63
LAST = 2
"""Number of a client's connections to consider: the present one, and the previous one."""


class Silences:
    def __init__(self, events: Sequence[Event] = ()) -> None:
        self._spans: list[tuple[int, int]] = []
        self._connections: dict[str, list[int]] = defaultdict(list)
        self._greetings: dict[str, list[int]] = defaultdict(list)
        several = False
        for event in events:
            with taking(event):
                data = event.data
                match event.hop, event.event:
                    case "rig", "run":
                        several = bool(data["bench"].get("gateway"))
                    case "wire" | "air", "connack":
                        self._connections[data["line"]].append(event.t)
                    case "wire", "hello":
                        self._greetings[data["line"]].append(event.t)
                    case "board", "connected":
                        self._connections[data["device"]].append(event.t)
                    case _, "happened" if data["kind"] in SILENCING and _excuses(data):
                        end = FAR if data["kind"] == FOR_EVER else event.t + SETTLES
                        self._spans.append((data.get("since", event.t), end))
        if not several:
            self._spans = []
        for times in (*self._connections.values(), *self._greetings.values()):
            times.sort()

    def excuse(self, client: str, t: int) -> bool:
        """Return whether a gateway's silence explains the loss of a client's exchanges at `t`."""
        last = self._last(client, t)
        greetings = self._greetings.get(client, [])
        unanswered = greetings[bisect_right(greetings, min(last, default=0)) :]
        moments = [t, *last, *(greeting for greeting in unanswered if greeting < t)]
        return any(begin <= one <= end for one in moments for begin, end in self._spans)

    def since(self, client: str, t: int) -> bool:
        """Return whether a gateway was silent at any time from a client's last connection to
        `t`."""
        last = max(self._last(client, t), default=0)
        return any(begin <= t and last <= end for begin, end in self._spans)

    def _last(self, client: str, t: int) -> list[int]:
        """Return the start times of a client's last connections up to `t`, at most `LAST`."""
        times = self._connections.get(client, [])
        at = bisect_right(times, t)
        return times[max(0, at - LAST) : at]


def _excuses(data: dict[str, Any]) -> bool:
    """Return whether a fault excuses suspect sessions. A planned restart excuses none."""
    return bool(data.get("doubts", 1) and data.get("excuses", True))
