"""Judges a run by its history.

In: a history. Out: an outcome for each publication, and the verdict of the run. The truth is the
publications in the boards' ledgers and the clients' journals (hop `board`). The claim is the table
(hop `table`; `batch` for a bench that ends at the landing place). The other hops only show where a
publication went wrong first.

hil/VERDICT.md says when a run *fails*, is *unknown*, or *holds*.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from hil.judge import (
    air,
    aside,
    calm,
    columns,
    commands,
    copied,
    coverage,
    doubts,
    figures,
    known,
    links,
    lists,
    readings,
    remains,
    sessions,
    starts,
    states,
    walked,
)
from hil.judge.publication import HARMLESS, Key, Outcome, Publication
from hil.judge.seen import Seen
from hil.judge.silences import Silences
from hil.observe.history import HOPS, READINGS, Event, taking

CLAIMS = {"table": "in the table", "batch": "landed"}


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Result:
    verdict: Verdict
    reasons: list[str]
    """Reasons why the verdict is not `holds`."""
    publications: list[Publication]
    """Publications in order of their key."""
    produced: int
    """Number of readings and messages, without the boards' status messages."""
    rows: int
    """Number of rows at the hop of the claim, without those of status messages."""
    claim: str
    statuses: int
    """Number of status messages of the boards."""
    commands: int
    faults: Counter[str]
    """Number of faults that happened, by kind."""
    last_words: dict[str, list[str]]
    """Last log lines, by the name of a program that ended by itself, or by the reason for which the
    rig broke off the run."""

    @property
    def offenders(self) -> list[Publication]:
        """Return the publications whose outcome is not in HARMLESS."""
        return [
            publication for publication in self.publications if publication.outcome not in HARMLESS
        ]

    @property
    def start(self) -> int:
        """Return the time of the first publication of a board or client, in monotonic nanoseconds,
        or 0 if there is none.
        """
        return min(
            (seen.t for publication in self.publications for seen in publication.way["board"]),
            default=0,
        )

    def count(self, outcome: Outcome) -> int:
        return sum(publication.outcome is outcome for publication in self.publications)

    def summary(self) -> str:
        """Return the counts in words, for example `400 produced · 400 in the table · 0 lost · 0
        doubled · 0 altered`. The other outcomes are named only if their count is above 0.
        """
        parts = [
            f"{self.produced} produced",
            f"{self.rows} {CLAIMS[self.claim]}",
            f"{self.count(Outcome.LOST)} lost",
            f"{self.count(Outcome.DUPLICATE)} doubled",
            f"{self.count(Outcome.ALTERED)} altered",
        ]
        rare = (
            Outcome.PHANTOM,
            Outcome.OUT_OF_ORDER,
            Outcome.LEFT,
            Outcome.UNDELIVERED,
            Outcome.DIED,
            Outcome.GAVE_WAY,
            Outcome.UNKNOWN,
        )
        parts += [f"{self.count(outcome)} {outcome}" for outcome in rare if self.count(outcome)]
        return " · ".join(parts)


def check(events: Iterable[Event]) -> Result:
    """Judge a history. The events may have any order. Raises OncewayError if an event breaks the
    schema of hil/HISTORY.md.
    """
    events = list(events)
    seen = Seen()
    for event in events:
        with taking(event):
            seen.take(event)
    seen.sort()
    seen.silences = Silences(events)
    hops = HOPS[: HOPS.index(seen.claim) + 1]
    disordered = {hop: _disordered(hop, seen) for hop in hops[1:]}
    keys = sorted(seen.ways.keys() | seen.decoded.keys())
    publications = [_judge(key, hops, disordered, seen) for key in keys]
    outcomes = Counter(
        publication.outcome for publication in publications if publication.outcome not in HARMLESS
    )
    under_way = outcomes.pop(Outcome.UNKNOWN, 0)
    of_readings = [
        way for way in seen.ways.values() if not any(sighting.status for sighting in way["board"])
    ]
    moment = "when the run gave up waiting" if seen.ended else "where the history breaks off"
    unsure = (
        list(doubts.causes(seen))
        + [f"{under_way} still under way {moment}", *doubts.without_delivery(seen)]
        * bool(under_way)
        + sessions.doubts(events)
        + list(states.doubts(events))
        + list(walked.doubts(events))
        + doubts.found(seen)
        + list(commands.unshown(seen))
        + coverage.doubts(events)
        + doubts.never_sent_again(seen, coverage.coverage(events))
        + air.doubts(events)
        + list(known.strange(events))
    )
    wrong = (
        seen.deaths
        + sorted(set(seen.errors))
        + [f"{count} {outcome}" for outcome, count in outcomes.items()]
        + seen.contradictions
        + commands.disobeyed(seen)
        + links.wrong(events)
        + air.wrong(events)
        + starts.wrong(events)
        + aside.wrong(seen)
        + remains.wrong(events)
        + figures.wrong(events)
        + list(seen.nameless.wrong())
        + calm.wrong(events)
        + list(calm.slow_to_go_on(events))
        + sessions.wrong(events)
        + states.wrong(events)
        + walked.wrong(events)
        + walked.mirrored(events, seen.ways, seen.provisioned)
        + lists.wrong(
            *(seen.listed, seen.reworded, seen.devices),
            seen.claim if _keeps_all(seen) else None,
            seen.provisioned,
        )
        + columns.torn_axes(seen.received(), steady=seen.clocks.steady)
        + columns.disordered_starts(seen.received(), seen.began)
        + seen.clocks.always_off(seen.times())
        + columns.gaps([*seen.ways.values(), *seen.listed.values()], seen.first_batch)
        + columns.oversized(
            [*seen.ways.values(), *seen.listed.values()], seen.batch_count, seen.batch_bytes
        )
        + seen.hasty()
        + copied.early(seen.ways.values(), seen.alive_until, seen.silent_ns)
        + [
            f"the gateway has forgotten the flow of {key}"
            for t, key in seen.forgotten
            if not seen.silences.excuse(key.device, t)
        ]
        + [
            f"{end} sent {count} {packet.upper()} for packets that the other end had not sent"
            for (end, packet), count in sorted(seen.unexpected_answers.items())
        ]
    )
    return Result(
        verdict=Verdict.FAILS if wrong else Verdict.UNKNOWN if unsure else Verdict.HOLDS,
        reasons=wrong + unsure,
        publications=publications,
        produced=sum(len(way["board"]) for way in of_readings),
        rows=sum(len(way[seen.claim]) for way in of_readings),
        claim=seen.claim,
        statuses=len(seen.ways) - len(of_readings),
        commands=sum(map(len, seen.commands.values())),
        faults=+seen.happened,
        last_words={program: lines for program, lines in seen.last_words.items() if lines},
    )


def _keeps_all(seen: Seen) -> bool:
    """Return whether each row of a store must be at the last hop. Rows may be missing there if the
    run was interrupted, a program ended by itself, the rig broke, a store was lost or restored, or
    a batch is in quarantine. With `copies = 2`, another gateway may land the rows instead.
    """
    return (
        seen.ended
        and not (seen.stalled or seen.replicated)
        and not (seen.restores or seen.died or seen.deaths or seen.broken or seen.quarantined)
    )


def _judge(
    key: Key, hops: tuple[str, ...], disordered: dict[str, set[Key]], seen: Seen
) -> Publication:
    way = seen.ways[key]
    board, claim = way["board"], way[hops[-1]]
    outcome, hop, why = Outcome.OK, None, ""
    if not board:
        # a ledger that was not read to its end may have the publication
        outcome = Outcome.PHANTOM if "board" in seen.complete else Outcome.UNKNOWN
        hop = next(hop for hop in (*hops, READINGS) if way.get(hop, 1))
    elif len(board) > 1:  # one key for two samples: the board's counter went back
        outcome, hop = Outcome.DUPLICATE, "board"
    elif key in seen.departed and not any(way[hop] for hop in hops[1:]):
        outcome, hop = Outcome.LEFT, "board"
    elif not claim and seen.lost_after_acknowledgement(key):
        outcome, hop = Outcome.DIED, "spool"
    elif not any(way[hop] for hop in hops[1:]) and seen.gave_way(key):
        outcome, hop = Outcome.GAVE_WAY, "spool"
    elif not claim:
        outcome, hop = _lost(key, hops, seen)
    elif seen.too_often(key, board[0].qos):
        outcome, hop = Outcome.DUPLICATE, next(hop for hop in hops if len(way[hop]) > 1)
    elif altered := next(((hop, why) for hop in hops[1:] if (why := seen.altered(key, hop))), None):
        outcome, (hop, why) = Outcome.ALTERED, altered
    elif key in disordered[hops[-1]]:
        outcome, hop = (
            Outcome.OUT_OF_ORDER,
            next(hop for hop in hops[1:] if key in disordered[hop]),
        )
    elif seen.reads and (found := readings.judge(key.device, claim, seen.decoded[key])):
        outcome, why = found
        hop = READINGS
        if outcome is Outcome.LOST and seen.holds("batch", key):
            outcome, hop = Outcome.UNKNOWN, "table"
    return Publication(key, outcome, hop, way, why)


def _lost(key: Key, hops: tuple[str, ...], seen: Seen) -> tuple[Outcome, str]:
    """Return the outcome of a publication that is not at the last hop, and a hop: the hop that has
    yet to deliver the publication, or else the first hop that the publication did not reach.
    """
    way = seen.ways[key]
    last = max(index for index, hop in enumerate(hops) if way[hop])
    if seen.holds(hops[last], key):
        return Outcome.UNKNOWN, hops[last]
    undelivered = way["board"][0].qos == 0 and last == 0
    return Outcome.UNDELIVERED if undelivered else Outcome.LOST, hops[last + 1]


def _disordered(hop: str, seen: Seen) -> set[Key]:
    """Return the publications whose first row at a hop has a higher position in the store than a
    later publication of the same board. Publications that the gateway refused for good do not
    count: the board set them aside, and may send them late.
    """
    arrivals: dict[tuple[str, str, int], list[tuple[int, Key]]] = defaultdict(list)
    for key, way in seen.ways.items():
        if seen.set_aside(key):
            continue
        first: dict[str, int] = {}
        for row in way[hop]:
            if (row.origin, row.position) in seen.copies:
                continue
            first[row.origin] = min(row.position, first.get(row.origin, row.position))
        for origin, position in first.items():
            arrivals[origin, key.device, key.incarnation].append((position, key))
    disordered = set()
    for arrived in arrivals.values():
        newest = 0
        for _, key in sorted(arrived):
            if key.sequence < newest:
                disordered.add(key)
            newest = max(newest, key.sequence)
    return disordered
