"""Whether a run has tried that what is sent again goes nowhere twice.

In: what was seen, and how often each window was hit. Out: a reason for which the verdict is
*unknown*. A kill between a commit and its acknowledgement makes a board send again what is in the
store. If no board did, no kill fell where it was aimed, whatever the window was called.
"""

from collections.abc import Mapping

from hil.judge.coverage import COMMITTED
from hil.judge.seen import Seen


def doubts(seen: Seen, hit: Mapping[str, Mapping[str, int]]) -> list[str]:
    """hit: by kind and window. Not asked where clients publish: their PUBLISH crosses no wire of
    the rig, so nobody can tell whom a kill struck.
    """
    struck = any(windows.get(COMMITTED) for windows in hit.values())
    if not struck or seen.clients or not seen.ours or _sent_again(seen):
        return []
    return [
        f"faults fell into the window `{COMMITTED}`,"
        " and no board has sent again what the store had already"
    ]


def _sent_again(seen: Seen) -> bool:
    return any(
        sent > min(row.t for row in way["spool"])
        for key, way in seen.ways.items()
        if way["spool"]
        for sent in seen.published[key.device, key.sequence & 0xFFFF]
    )
