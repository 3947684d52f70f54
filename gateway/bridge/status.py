"""The state of a bridge, for users."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from gateway.bridge.pauses import LONGEST_S
from gateway.system.amounts import amount, are, wait, were


@dataclass(frozen=True, slots=True)
class BridgeStatus:
    """The state of one bridge. The counts `sent` to `aside_lost` are since the start.

    error: why there is no connection, None while connected. waiting, waiting_bytes: messages on
    disk for the other broker. sent: messages that the other broker has acknowledged. refused:
    messages that it has refused for good. dropped: messages dropped at the bound, the oldest first.
    received: messages from the other broker. set_aside: messages that can never reach the other
    broker. aside_lost: set-aside messages dropped at their bound. aside, aside_bytes: set-aside
    messages kept now. lacking: filters of `down` that the other broker refuses. unconfirmed:
    messages dropped because the other broker closes the connection at their PUBREL; they may have
    arrived. not_taken: messages from the other broker that this gateway can never accept. held:
    messages that this gateway refuses for now; the other broker keeps them. looped: messages that
    came back in a loop of bridges and were not forwarded again. retained: one of STATES, or the
    reason why the brokers cannot be compared. differ: retained topics that differ, None while
    unknown. agreed: retained topics whose message both brokers are proven to have. retained_here,
    retained_there: retained messages of each broker after the last comparison. oldest_s: age of the
    oldest waiting message in seconds, counted from the gateway's start at the earliest; None if
    none waits. last_error: error of the last connection that failed or ended.
    """

    name: str
    server: str = ""
    error: str | None = None
    waiting: int = 0
    waiting_bytes: int = 0
    sent: int = 0
    refused: int = 0
    dropped: int = 0
    received: int = 0
    set_aside: int = 0
    aside_lost: int = 0
    aside: int = 0
    aside_bytes: int = 0
    lacking: tuple[str, ...] = ()
    unconfirmed: int = 0
    not_taken: int = 0
    held: int = 0  # prose: JSON key
    looped: int = 0
    retained: str = "off"
    differ: int | None = None
    agreed: int = 0
    retained_here: int = 0
    retained_there: int = 0
    oldest_s: float | None = None
    last_error: str | None = None


STATES = ("off", "waiting", "comparing", "equal", "differ")
"""States of the comparison of retained messages. Every other text is an error."""
LATE_S = 3 * LONGEST_S
"""Age of the oldest waiting message at which the bridge counts as late: three times the longest
pause between two attempts to connect.
"""
SAMPLE_S = 5.0
"""Seconds between two samples of a queue."""
_MOST_SAMPLES = 1000


def is_late(oldest_s: float | None) -> bool:
    """Whether messages wait too long for the other broker. oldest_s: as in `BridgeStatus`."""
    return oldest_s is not None and oldest_s > LATE_S


LACKING = "lacking"
"""Kind of the problem that the other broker refuses a subscription. Each refused topic filter is
one such problem.
"""
REMEDIES = {
    "bridge": "Look at the other broker, and at [[bridge]]: sudo onceway gateway status",
    "aside": "List them with their reasons, then discard them or try again: sudo onceway bridge"
    " aside",
    "dropped": "Repair the connection; if the log says that the queue is full, raise max_messages"
    " and"
    " max_bytes of the bridge",
    "unconfirmed": "The log names them; find out why the other broker closes the connection",
    "not_taken": "The log names them and the reason: journalctl -u onceway-gateway",
    "looped": "Give one bridge other topics. The log names both bridges: journalctl -u"
    " onceway-gateway",
    "queue": "Look at the other broker's log, and at: sudo onceway bridge status",
    "retained": "See the differences and the last error: sudo onceway bridge status",
    "held": "Make room where the log says: journalctl -u onceway-gateway",
    LACKING: "Look at down of [[bridge]], and at the other broker's rules",
}
"""The remedy for a problem, by its kind."""


def read(found: Mapping[str, Any]) -> BridgeStatus:
    """Return a status that a running gateway has sent. An earlier or later release may know other
    fields.
    """
    known = {item.name for item in fields(BridgeStatus)}
    return BridgeStatus(**{name: value for name, value in found.items() if name in known})


def problems(item: BridgeStatus) -> list[tuple[str, str]]:
    """Return the problems of a bridge: the kind and a text for each. The page, notifications,
    `onceway doctor`, `onceway gateway status` and `onceway bridge status` all show these problems.
    """
    found = []
    if item.error is not None:
        found.append(("bridge", f"{item.error}; {wait(item.waiting)}"))
    if item.aside or item.aside_lost:
        lost = f", {item.aside_lost:,} more were lost" if item.aside_lost else ""
        found.append(("aside", f"{are(item.aside)} set aside{lost}"))
    if item.dropped:
        text = f"{were(item.dropped)} lost: too many waited, or the other broker closed connections"
        found.append(("dropped", text))
    if item.unconfirmed:
        text = f"{were(item.unconfirmed)} given up at their PUBREL and may have arrived"
        found.append(("unconfirmed", text))
    if item.not_taken:
        text = f"{amount(item.not_taken, 'message')} from the other broker cannot be accepted here"
        found.append(("not_taken", text))
    if item.held:
        text = f"{wait(item.held)} at the other broker: this gateway cannot store more now"
        found.append(("held", text))
    if item.error is None and is_late(item.oldest_s):
        text = f"{wait(item.waiting)}, the oldest for {item.oldest_s:.0f} s"
        found.append(("queue", text))
    if item.retained == "differ":
        differ = "topic differs" if item.differ == 1 else "topics differ"
        text = f"{item.differ:,} retained {differ} from the other broker's"
        found.append(("retained", text))
    elif item.retained not in STATES:
        found.append(("retained", f"retained messages cannot be compared: {item.retained}"))
    if item.looped:
        found.append(("looped", f"{amount(item.looped, 'message')} came back in a loop of bridges"))
    found += [
        (LACKING, f"the other broker gives no subscription to {name}") for name in item.lacking
    ]
    return found


class QueueAge:
    """The age of a queue's oldest message, estimated from samples of message numbers."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int]] = []
        """Samples in order of time: the time in seconds, and the number of the newest message plus
        1.
        """

    def sample(self, now: float, first: int, after: int) -> None:
        """Note which messages wait at this time. first: number of the oldest waiting message.
        after: number of the newest message, plus 1.
        """
        samples = self._samples
        while samples and samples[0][1] <= first:
            del samples[0]
        if not samples or samples[-1][1] != after:
            samples.append((now, after))
        if len(samples) > _MOST_SAMPLES:
            self._samples = _thinned(samples, now)

    def seconds(self, now: float, first: int) -> float:
        """Return the age of the oldest message in seconds. It may be too low, by two SAMPLE_S or
        3 %.
        """
        for time, after in self._samples:
            if after > first:
                return now - time
        return 0.0


def _thinned(samples: list[tuple[float, int]], now: float) -> list[tuple[float, int]]:
    """Leave out samples whose neighbours are so near each other that at most 2 % of an age is lost.
    So the number of samples grows with the logarithm of the oldest age.
    """
    kept = samples[:1]
    for sample, following in pairwise(samples[1:]):
        if following[0] - kept[-1][0] > 0.02 * (now - following[0]):
            kept.append(sample)
    return [*kept, samples[-1]]
