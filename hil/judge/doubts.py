"""Reasons why a history cannot show that all went well. In: the content of a history. Out: a
sentence for each reason: first the causes, then their possible effects.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from hil.judge.coverage import COMMITTED
from hil.judge.seen import Seen
from hil.observe.history import READINGS

BREAKS_OFF = "the history breaks off"
"""Reason for the verdict *unknown* if a run was interrupted."""


def causes(seen: Seen) -> Iterator[str]:
    """Yield a sentence for each reason why events may be missing."""
    yield from seen.broken
    if not seen.begun:
        yield "the history has no beginning"
    if not seen.ended:
        yield BREAKS_OFF
    if seen.stalled:
        yield "nothing moved any more, and the run gave up waiting"
    yield from seen.unread


def without_delivery(seen: Seen) -> Iterator[str]:
    """Yield a sentence for each publisher whose publications have reached no hop after the board.
    Such a publisher is the likely reason why publications are still under way.
    """
    delivering = {
        key.device for key, way in seen.ways.items() if any(way[h] for h in seen.hops[1:])
    }
    for device in seen.plan if seen.ours else ():
        if device not in delivering and any(key.device == device for key in seen.ways):
            yield f"nothing of {device} reached the gateway"


def found(seen: Seen) -> list[str]:
    """Return the reasons why the history is not enough for a verdict: hops not read to the end,
    faults that did not happen, missing reports of the rig, missing deliveries."""
    due = [*(seen.hops if seen.ours else ("board", seen.claim)), *[READINGS] * seen.reads]
    doubts = [f"hop {hop} was not read to the end" for hop in due if hop not in seen.complete]
    missing = sorted(seen.planned.keys() - seen.fired)
    doubts += [
        f"planned fault did not happen: {fault}"
        f" ({seen.planned[fault]}){seen.impossible.get(fault, '')}"
        for fault in missing
    ]
    doubts += _missing_rig_reports(seen) if seen.ours else []
    if seen.expected_copies and not seen.copies:
        doubts.append("no other gateway has landed what the dead one had acknowledged")
    doubts += _gaps(seen) if seen.ways else ["no publication was produced"]
    return doubts


def _missing_rig_reports(seen: Seen) -> Iterator[str]:
    """Yield a sentence for each report that the rig must make and that the history lacks."""
    if not seen.armed:
        yield (
            "the history does not say that all faults and observers were armed before the first"
            " publication"
        )
    for fault in sorted(seen.planned.keys() - seen.announced):
        yield f"the history does not announce the planned fault {fault}"
    for line in seen.devices:
        if line not in seen.counted:
            yield f"the wire of {line} has not reported its final counts"
        if line not in seen.met:
            yield f"no handshake of {line} with the gateway was seen"
        if line in seen.by_air and line not in {sender for sender, _ in seen.published}:
            yield f"no publication of {line} was read on the air"
        if line not in seen.starts and line not in seen.real:
            yield f"the ledger of {line} reports no start"
        if lacks := seen.welcomed[line] - seen.reported[line]:
            yield f"the wire of {line} has not reported on {lacks} of its sessions"


def _gaps(seen: Seen) -> Iterator[str]:
    """Yield a sentence for each device that produced fewer publications than planned, each device
    with QoS 0 from which nothing arrived, and each hop without publications.
    """
    produced = Counter(
        key.device
        for key, way in seen.ways.items()
        for sighting in way["board"]
        if not sighting.status
    )
    for device, planned in seen.plan.items():
        if produced[device] < planned:
            yield f"{device} produced {produced[device]} of {planned} planned publications"
    arrived = {key.device for key, way in seen.ways.items() if way[seen.claim]}
    undelivered = {
        key.device
        for key, way in seen.ways.items()
        if any(sighting.qos == 0 for sighting in way["board"])
    }
    for device in sorted(undelivered - arrived):
        yield f"nothing that {device} published at QoS 0 has arrived"
    for hop in seen.hops[1:]:
        if not any(way[hop] for way in seen.ways.values()):
            yield f"no publication was seen at hop {hop}"


def never_sent_again(seen: Seen, hit: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a reason if kills seem to have happened between a commit and its acknowledgement, but
    no board has sent a stored publication again. In that case the kills have in fact missed this
    window. Return no reason if clients publish: the rig does not read their PUBLISH packets. hit:
    number of hits by kind and window.
    """
    struck = any(windows.get(COMMITTED) for windows in hit.values())
    if not struck or seen.clients or not seen.ours or _sent_again(seen):
        return []
    return [
        f"faults fell into the window `{COMMITTED}`,"
        " but no board has sent a publication again that the store already had"
    ]


def _sent_again(seen: Seen) -> bool:
    return any(
        sent > min(row.t for row in way["spool"])
        for key, way in seen.ways.items()
        if way["spool"]
        for sent in seen.published[key.device, key.sequence & 0xFFFF]
    )
