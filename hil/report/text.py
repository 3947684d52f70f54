"""Findings as text for a terminal: publications with mistakes, reasons, repeated packets, and last
the verdict and the summary.
"""

from rich.console import Console

from hil.judge.checker import Result, Verdict
from hil.judge.publication import Outcome, Publication
from hil.observe.history import COMMAND, HOPS
from hil.report.findings import Findings, Replayed

CLAIMED = {"table": "in the table", "batch": "at the landing place"}
OFFENDERS_SHOWN = 20
WAYS_SHOWN = 5


def tell(console: Console, found: Findings) -> None:
    result = found.result
    wrong, start = result.offenders, result.start
    for number, publication in enumerate(wrong[:OFFENDERS_SHOWN]):
        console.print(offender(publication), soft_wrap=True, markup=False)
        for line in way(publication, start) if number < WAYS_SHOWN else ():
            console.print(line, soft_wrap=True, style="dim", markup=False)
    if len(wrong) > OFFENDERS_SHOWN:
        console.print(f"… and {len(wrong) - OFFENDERS_SHOWN} more")
    for reason in result.reasons:
        console.print(reason, soft_wrap=True, markup=False)
    for limit in found.exceeded:
        console.print(limit, soft_wrap=True, style="red")
    for name, lines in result.last_words.items():
        console.print(f"the last log lines of {name}:", soft_wrap=True)
        for line in lines:
            console.print(f"    {line}", soft_wrap=True, style="dim", markup=False)
    for name, directions in sorted(found.sent.items()):
        console.print(
            f"{name} {', '.join(sent(*one, found.lines[name]) for one in directions.items())}",
            soft_wrap=True,
            style="dim",
            markup=False,
        )
    for name, counts in found.gateways.items():
        counted_parts = ", ".join(
            f"{count} {outcome}" for outcome, count in counts.items() if count
        )
        console.print(f"{name}: {counted_parts or 'nothing stored'}", soft_wrap=True, style="dim")
    for (line, direction), replayed in sorted(found.replayed.items()):
        console.print(
            recording(line, direction, replayed), soft_wrap=True, style="dim", markup=False
        )
    happened = ", ".join(f"{count} × {kind}" for kind, count in sorted(result.faults.items()))
    statuses = (
        f"; {counted(result.statuses, 'status message')} of the boards, judged like readings"
        if result.statuses
        else ""
    )
    commands = f"; {counted(result.commands, 'command')} to boards" if result.commands else ""
    console.print(
        f"{found.headline}: {happened or 'no faults'}{statuses}{commands}", soft_wrap=True
    )
    console.print(
        result.summary(),
        style="bold green" if found.is_kept else "bold red",
        soft_wrap=True,
    )


def sentence(found: Findings) -> str:
    result = found.result
    planned = sum(fault.kind != COMMAND for fault in found.faults.values())
    statuses = f" and {counted(result.statuses, 'status', 'statuses')}" if result.statuses else ""
    faults = counted(planned, "planned fault") if planned else "no fault planned"
    counts = f"{counted(result.produced, 'publication')}{statuses}, {faults}"
    match result.verdict:
        case Verdict.HOLDS:
            return f"The promise holds: {_promise_held(result)} ({counts}){_other_counts(result)}."
        case Verdict.FAILS:
            return f"The promise is broken: {result.reasons[0]} ({counts})."
        case _:
            return f"Nothing is proven: {result.reasons[0]} ({counts})."


def counted(count: int, one: str, many: str = "") -> str:
    """Return, for example, `1 fault` or `2 faults`. many: the plural, unless it only adds an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def _promise_held(result: Result) -> str:
    """Return the part of the verdict's sentence about the publications: whether all had to arrive,
    and whether some arrived more than once.
    """
    due = " that had to arrive" if result.count(Outcome.OK) < len(result.publications) else ""
    often = "at least" if _twice(result) else "exactly"
    return f"each publication{due} is {CLAIMED[result.claim]} {often} once"


def _other_counts(result: Result) -> str:
    """Return the counts that the verdict's sentence does not contain, in words."""
    left_behind, undelivered = result.count(Outcome.LEFT), result.count(Outcome.UNDELIVERED)
    died, gave_way = result.count(Outcome.DIED), result.count(Outcome.GAVE_WAY)
    phrases = {
        f"{undelivered} at QoS 0 not delivered": undelivered,
        f"{left_behind} left behind in a board that was swapped": left_behind,
        f"{died} lost with the card of a dead gateway": died,
        f"{gave_way} refused for good and dropped by a full journal": gave_way,
        f"{_twice(result)} arrived more than once, which the claim allows": _twice(result),
    }
    return "".join(f"; {one}" for one, count in phrases.items() if count)


def _twice(result: Result) -> int:
    """Return the number of publications that are at the hop of the claim more than once."""
    return sum(len(one.way[result.claim]) > 1 for one in result.publications)


def recording(line: str, direction: str, replayed: Replayed) -> str:
    """Return a sentence about the part of a recorded link that a line has used."""
    up = replayed.up_s / replayed.run_s if replayed.run_s else 1.0
    shortened = (
        f"; {replayed.shortened} outages of the recording are shortened to"
        f" {replayed.longest_outage:g} (longest_outage)"
        if replayed.shortened
        else ""
    )
    return (
        f"{line} {direction}: {replayed.seconds:.0f} of {replayed.of:.0f} s of {replayed.trace}, "
        f"from second {replayed.begin:.0f} on; the link was up {up:.0%} of the time, "
        f"{replayed.lost} of {replayed.frames} frames lost{shortened}"
    )


def sent(direction: str, counts: dict[str, int], line: dict[str, dict[str, int]]) -> str:
    """Return the counts of a direction in words. line: bytes by direction. If the direction had no
    session, it has bytes but no frames.
    """
    return (
        f"{direction}: {counted(line[direction]['sent'], 'byte')},"
        f" {counted(counts['frames'], 'frame')},"
        f" {counts['frames_again']} of them sent again; "
        f"{counts['publishes']} PUBLISH, {counts['publishes_again']} with DUP"
    )


def offender(publication: Publication) -> str:
    key, way = publication.key, publication.way
    seen = ", ".join(
        f"{hop} {len(way[hop])}×" if len(way[hop]) > 1 else hop for hop in HOPS if way[hop]
    )
    where = (
        f"still at hop {publication.hop}"
        if publication.outcome is Outcome.UNKNOWN
        else f"wrong from hop {publication.hop} on"
    )
    why = f" ({publication.why})" if publication.why else ""
    text = f"{publication.outcome}: {key.device} sequence {key.sequence}, {where}"
    return f"{text}{why}; seen at: {seen}"


def _at(time: float | None) -> str:
    return "without a time" if time is None else f"at {time}"


def way(publication: Publication, start: int) -> list[str]:
    """Return a line for each sighting of a publication. start: monotonic ns that are shown as 0."""
    lines = []
    for hop in HOPS:
        for seen in publication.way[hop]:
            content = (
                ", ".join(f"{r.name}={r.content} {_at(r.time)}" for r in seen.records or ())
                or f"{len(seen.payload or b'')} bytes, no SenML"
            )
            stood = f"  {seen.origin} position {seen.position}" if seen.origin else ""
            lines.append(f"    {(seen.t - start) / 1e9:9.3f} s  {hop:5}{stood}  {content}")
    return lines
