"""Check that a run sent publications again that were stored already. In: the events of a history,
and the hits of each window. Out: a reason for which the verdict is *unknown*. A kill between a
commit and its acknowledgement makes a board send a stored publication again. If no board did, no
kill hit its target, whatever the name of the window.
"""

from collections.abc import Mapping

from hil.judge.coverage import COMMITTED
from hil.judge.seen import Seen


def doubts(seen: Seen, hit: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the reasons. hit: by kind and window. Skipped where clients publish: their PUBLISH
    crosses no wire of the rig, so the target of a kill is unknown.
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
