"""The checker. In: a history, and nothing else. Out: a verdict per publication and one for the run.

The truth is what the boards' ledgers and the clients' journals say was published (hop `board`); the
claim is what stands in the table (hop `table`; `batch` for a bench that ends at the landing place).
The hops between are looked at only to name the first one at which a publication went wrong. The run
*fails* if one went wrong, a ledger contradicts itself, a command was not obeyed once and in order,
or a program under test ended by itself; it is *unknown* if nothing went wrong but the history
cannot show that: a planned fault did not happen, a board or client produced less than planned,
nothing was seen at a hop or it was not read to its end, the run gave up waiting, the rig itself
broke. Else it *holds*: every publication is ok, or can be read from a board that was swapped, or
was published at QoS 0 and did not reach the gateway.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hil.judge import columns, coverage, links, readings, sessions
from hil.judge.clocks import Clocks
from hil.judge.publication import HARMLESS, Key, Outcome, Publication, Sighting
from hil.judge.senml import Record, decode, of_link, says
from hil.observe.history import COMMAND, HOPS, READINGS, Event, taking

CLAIMS = {"table": "in the table", "batch": "landed"}
COLUMNS = ("topic", "client", "received", "boot", "monotonic", "batch", "undecodable")
"""What is kept of a row beside its payload."""
BREAKS_OFF = "the history breaks off"
"""The doubt about a run that was interrupted."""


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Result:
    verdict: Verdict
    reasons: list[str]
    """Why the verdict is not `holds`."""
    publications: list[Publication]
    """In order of their key."""
    produced: int
    rows: int
    """Readings sampled, and rows at the claim's hop that hold none of the statuses below."""
    claim: str
    statuses: int
    """Publications of the boards about themselves; they are judged like readings and counted apart.
    """
    commands: int
    """Sent to the boards."""
    faults: Counter[str]
    """Faults that happened, by kind."""
    last_words: dict[str, list[str]]
    """Of what ended by itself: the last lines of its log, by its name; of what broke in the rig by
    why.
    """

    @property
    def offenders(self) -> list[Publication]:
        """Publications that are neither ok nor left behind nor undelivered at QoS 0."""
        return [
            publication for publication in self.publications if publication.outcome not in HARMLESS
        ]

    @property
    def start(self) -> int:
        """When the first publication was sampled, in monotonic nanoseconds; 0 if none was."""
        return min(
            (seen.t for publication in self.publications for seen in publication.way["board"]),
            default=0,
        )

    def count(self, outcome: Outcome) -> int:
        return sum(publication.outcome is outcome for publication in self.publications)

    def summary(self) -> str:
        """E.g. `400 produced · 400 in the table · 0 lost · 0 doubled · 0 altered`; others are named
        when there are any.
        """
        parts = [
            f"{self.produced} produced",
            f"{self.rows} {CLAIMS[self.claim]}",
            f"{self.count(Outcome.LOST)} lost",
        ]
        parts += [
            f"{self.count(Outcome.DUPLICATE)} doubled",
            f"{self.count(Outcome.ALTERED)} altered",
        ]
        rare = (
            Outcome.PHANTOM,
            Outcome.OUT_OF_ORDER,
            Outcome.LEFT,
            Outcome.UNDELIVERED,
            Outcome.UNKNOWN,
        )
        parts += [f"{self.count(outcome)} {outcome}" for outcome in rare if self.count(outcome)]
        return " · ".join(parts)


@dataclass(slots=True)
class _Seen:
    """A history, sorted into what the verdict needs."""

    ways: dict[Key, dict[str, list[Sighting]]] = field(
        default_factory=lambda: defaultdict(lambda: {hop: [] for hop in HOPS})
    )
    waiting: set[tuple[str, Key]] = field(default_factory=set)
    left: set[Key] = field(default_factory=set)
    again: Counter[Key] = field(default_factory=Counter)
    resent: Counter[Key] = field(default_factory=Counter)
    refused: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By line and packet identifier: how often the gateway said that it does not know a PUBREL
    (0x92), or refused a PUBLISH (0x80 and above in a PUBREC).
    """
    clients: set[str] = field(default_factory=set)
    decoded: dict[Key, readings.Seen] = field(default_factory=lambda: defaultdict(readings.Seen))
    clocks: Clocks = field(default_factory=Clocks)
    gateway: str | None = None
    sent: dict[Key, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """Payloads as they left a client, or a real board, which may put a publication in other words
    when it sends it again.
    """
    complete: set[str] = field(default_factory=set)
    planned: dict[str, str] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)
    fired: set[str] = field(default_factory=set)
    contradictions: list[str] = field(default_factory=list)
    commands: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    obeyed: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By device: when, and which interval."""
    deaths: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    last_words: dict[str, list[str]] = field(default_factory=dict)
    claim: str = "table"
    hops: tuple[str, ...] = HOPS
    reads: bool = False
    """Whether the table of readings is judged."""
    plan: dict[str, int] = field(default_factory=dict)
    """By device or client: how many readings or messages it was to produce."""
    stalled: bool = False
    begun: bool = False
    began: int = -columns.FAR
    """When the run began."""
    forgotten: list[str] = field(default_factory=list)
    """What the gateway had under way for a client, and did not know any more."""
    ended: bool = False

    def take(self, event: Event) -> None:
        data = event.data
        self.clocks.take(event)
        match event.hop, event.event:
            case hop, "publication" if hop in HOPS:
                self.ways[_key(data)][hop].append(
                    self._at_board(event) if hop == "board" else _at_hop(event)
                )
            case hop, "waiting":
                self.waiting.add((hop, _key(data)))
            case "board", "left":
                self.left.add(_key(data))
            case "board", "again":
                self.again[_key(data)] += 1
            case "board", "resent":
                self.resent[_key(data)] += 1
            case "board", "forgotten":
                self.forgotten.append(f"the gateway has forgotten the flow of {_key(data)}")
            case "wire", "refused" if data["direction"] == "down":
                self.refused[data["line"], data["id"]] += 1
            case "readings", "reading":
                self.decoded[_key(data)].take(data)
            case "board", "sent":
                self.sent[_key(data)].add(bytes.fromhex(data["payload"]))
            case "rig", "command":
                self.commands[data["device"]].append((event.t, data["interval"]))
            case "board", "obeyed":
                self.obeyed[data["device"]].append((event.t, data["interval"]))
            case "board", "contradiction":
                self.contradictions.append(
                    f"the ledger of {data['device']} contradicts itself: {data['text']}"
                )
            case "batch", "changed":
                self.contradictions.append(f"{data['batch']} had landed, and {data['how']}")
            case hop, "complete":
                self.complete.add(hop)
            case _, "planned":
                self.planned[data["fault"]] = data["kind"]
            case "rig", "impossible":
                self.impossible[data["fault"]] = f": {data['why']}"
            case _, "happened":
                self.fired.add(data["fault"])
                self.happened[data["kind"]] += data["kind"] != COMMAND
            case "rig", "broken":
                self.broken.append(f"the rig broke: {data['why']}")
                self.last_words[data["why"]] = data["last_words"]
            case program, "ended":
                self.deaths.append(f"{program} ended by itself ({data['how']})")
                self.last_words[program] = data["last_words"]
            case program, "erred":
                self.errors.append(f"{program} met an internal error: {data['error']}")
            case "rig", "run":
                self._begin(data["bench"], data["plan"], data.get("hops", (*HOPS, READINGS)))
                self.gateway = data.get("gateway")
                self.began = event.t
            case "rig", "stalled":
                self.stalled = True
            case "rig", "end":
                self.ended = True

    def _begin(self, bench: dict[str, Any], plan: dict[str, Any], hops: Sequence[str]) -> None:
        self.claim = HOPS[HOPS.index(bench["until"])]
        self.reads = self.claim == "table" and READINGS in hops
        self.hops = tuple(hop for hop in HOPS[: HOPS.index(self.claim) + 1] if hop in hops)
        tables = [table for table in bench.get("client", ()) for _ in range(table.get("count", 1))]
        self.plan = {
            **plan["readings"],
            **{f"client-{number}": table["messages"] for number, table in enumerate(tables, 1)},
        }
        for fault in plan.get("faults", ()):
            self.planned.setdefault(fault["id"], fault["text"])
        self.begun = True

    def _at_board(self, event: Event) -> Sighting:
        data = event.data
        if data.get("payload") is None:
            records, payload = tuple(Record(*record) for record in data["records"]), None
        else:
            payload = bytes.fromhex(data["payload"])
            records = decode(payload) or ()
            self.sent[_key(data)].add(payload)
        if data["kind"] == "message":
            self.clients.add(data["device"])
        return Sighting(
            event.t,
            records,
            payload,
            data["kind"] == "status",
            data.get("qos", 2),
            sampled=data.get("sampled"),
            columns={name: data[name] for name in ("topic",) if name in data},
        )

    def held(self, hop: str, key: Key) -> bool:
        """Whether a hop holds a publication still, or the claim was not read to its end, so that
        what is missing there proves nothing.
        """
        return self.claim not in self.complete or (hop, key) in self.waiting

    def allowed(self, key: Key, qos: int) -> int:
        """How often a publication may stand in the claim. What comes to the landing place twice,
        the ingest takes once. At QoS 1 each PUBLISH that a client has sent may be a row there.
        """
        if self.claim == "table":
            return 1
        again = self.again[key] + self.resent[key] * (qos == 1)
        if key.device not in self.clients:  # as far as the gateway has asked for it
            again = min(again, self.refused[key.device, key.sequence & 0xFFFF])
        return 1 + again

    def altered(self, key: Key, hop: str) -> str:
        """What is wrong with what was found at a hop, in words; nothing, if all is well."""
        way = self.ways[key]
        before = HOPS[1 : HOPS.index(hop)]
        for found in way[hop]:
            why = (
                self._says_otherwise(key, found)
                or columns.wrong(key, found, way["board"][0], self.clocks, self.gateway)
                or next(filter(None, (columns.moved(found, way, at) for at in before)), None)
            )
            if why:
                return why
        return ""

    def _says_otherwise(self, key: Key, found: Sighting) -> str | None:
        way = self.ways[key]
        board = way["board"][0]
        if key in self.sent:
            sent = found.payload in self.sent[key]
            return None if sent else "its payload is not what was sent"
        wanted = board.records or ()
        if found.records is None or not says(found.records, wanted):
            return f"it says {_told(found.records)}, and must say {_told(wanted)}"
        if board.sampled is None:
            return None
        arrived = min(one.t for hop in HOPS[1:] for one in way[hop])
        times = {record.time for record in found.records if not of_link(record)}
        tells = (self.clocks.told(key.device, time, board.sampled, arrived) for time in times)
        return next((why for why in tells if why), None)


def _key(data: dict[str, Any]) -> Key:
    """A row without identity has its place in the store for one: nobody has published it under
    that.
    """
    if data["device"] is None:
        return Key("", 0, int(data["position"] if "position" in data else data["index"]))
    return Key(str(data["device"]), int(data["incarnation"]), int(data["sequence"]))


def _at_hop(event: Event) -> Sighting:
    payload = bytes.fromhex(event.data["payload"])
    return Sighting(
        event.t,
        decode(payload),
        payload,
        origin=event.data["origin"],
        position=event.data["position"],
        columns={name: event.data[name] for name in COLUMNS if name in event.data},
    )


def _told(records: Sequence[Record] | None) -> str:
    if records is None:
        return "nothing that is SenML"
    return ", ".join(
        f"{one.name}={one.value:g} {one.unit or ''}".rstrip() for one in records if not of_link(one)
    )


def check(events: Iterable[Event]) -> Result:
    """Judge a history. Its events may stand in any order. Raises OncewayError for one that is not
    as it should be.
    """
    events = list(events)
    seen = _Seen()
    for event in events:
        with taking(event):
            seen.take(event)
    seen.clocks.sort()
    hops = HOPS[: HOPS.index(seen.claim) + 1]
    disordered = {hop: _disordered(hop, seen.ways) for hop in hops[1:]}
    keys = sorted(seen.ways.keys() | seen.decoded.keys())
    publications = [_judge(key, hops, disordered, seen) for key in keys]
    outcomes = Counter(
        publication.outcome for publication in publications if publication.outcome not in HARMLESS
    )
    under_way = outcomes.pop(Outcome.UNKNOWN, 0)
    of_readings = [
        way for way in seen.ways.values() if not any(sighting.status for sighting in way["board"])
    ]
    doubts = (
        seen.broken
        + [f"{under_way} still under way when the run gave up waiting"] * bool(under_way)
        + sessions.doubts(events)
        + _doubts(seen)
        + coverage.doubts(events)
    )
    disobeyed = _disobeyed(seen)
    wrong = (
        seen.deaths
        + sorted(set(seen.errors))
        + [f"{count} {outcome}" for outcome, count in outcomes.items()]
        + seen.contradictions
        + disobeyed
        + links.wrong(events)
        + sessions.wrong(events)
        + columns.torn_axes(seen.ways.values())
        + columns.disordered_starts(seen.ways.values(), seen.began)
        + columns.gaps(seen.ways.values())
        + seen.forgotten
    )
    return Result(
        verdict=Verdict.FAILS if wrong else Verdict.UNKNOWN if doubts else Verdict.HOLDS,
        reasons=wrong + doubts,
        publications=publications,
        produced=sum(len(way["board"]) for way in of_readings),
        rows=sum(len(way[seen.claim]) for way in of_readings),
        claim=seen.claim,
        statuses=len(seen.ways) - len(of_readings),
        commands=sum(map(len, seen.commands.values())),
        faults=+seen.happened,
        last_words={program: lines for program, lines in seen.last_words.items() if lines},
    )


def _judge(
    key: Key, hops: tuple[str, ...], disordered: dict[str, set[Key]], seen: _Seen
) -> Publication:
    def first(hops: Iterable[str]) -> str:
        return next(iter(hops))

    way = seen.ways[key]
    board, claim = way["board"], way[hops[-1]]
    outcome, hop, why = Outcome.OK, None, ""
    if not board:
        # one that was not read to its end may have it
        outcome = Outcome.PHANTOM if "board" in seen.complete else Outcome.UNKNOWN
        hop = first(hop for hop in (*hops, READINGS) if way.get(hop, 1))
    elif len(board) > 1:  # one key for two samples: the board's counter went back
        outcome, hop = Outcome.DUPLICATE, "board"
    elif key in seen.left and not any(way[hop] for hop in hops[1:]):
        outcome, hop = Outcome.LEFT, "board"
    elif not claim:
        last = max(index for index, hop in enumerate(hops) if way[hop])
        if seen.held(hops[last], key):
            outcome, hop = Outcome.UNKNOWN, hops[last]
        else:
            outcome, hop = (
                Outcome.UNDELIVERED if board[0].qos == 0 and last == 0 else Outcome.LOST,
                hops[last + 1],
            )
    elif len(claim) > seen.allowed(key, board[0].qos):
        outcome, hop = Outcome.DUPLICATE, first(hop for hop in hops if len(way[hop]) > 1)
    elif altered := next(((hop, why) for hop in hops[1:] if (why := seen.altered(key, hop))), None):
        outcome, (hop, why) = Outcome.ALTERED, altered
    elif key in disordered[hops[-1]]:
        outcome, hop = (
            Outcome.OUT_OF_ORDER,
            first(hop for hop in hops[1:] if key in disordered[hop]),
        )
    elif seen.reads and (found := readings.judge(claim, seen.decoded[key])):
        outcome, why = found
        hop = READINGS
        if outcome is Outcome.LOST and seen.held("batch", key):
            outcome, hop = Outcome.UNKNOWN, "table"
    return Publication(key, outcome, hop, way, why)


def _disordered(hop: str, ways: dict[Key, dict[str, list[Sighting]]]) -> set[Key]:
    """Publications that arrived at a gateway's store for the first time after a later one of the
    same board.
    """
    arrivals: dict[tuple[str, str, int], list[tuple[int, Key]]] = defaultdict(list)
    for key, way in ways.items():
        first: dict[str, int] = {}
        for seen in way[hop]:
            first[seen.origin] = min(seen.position, first.get(seen.origin, seen.position))
        for origin, position in first.items():
            arrivals[origin, key.device, key.incarnation].append((position, key))
    late = set()
    for arrived in arrivals.values():
        newest = 0
        for _, key in sorted(arrived):
            if key.sequence < newest:
                late.add(key)
            newest = max(newest, key.sequence)
    return late


def _disobeyed(seen: _Seen) -> list[str]:
    """Boards that have not obeyed each command once and in order, told; a run that broke off proves
    nothing of what is missing.
    """
    whole = seen.ended and not seen.deaths and not seen.broken
    told = []
    for device in sorted(seen.commands.keys() | seen.obeyed.keys()):
        sent, obeyed = (
            [interval for _, interval in sorted(events[device])]
            for events in (seen.commands, seen.obeyed)
        )
        if obeyed != sent and (whole or obeyed != sent[: len(obeyed)]):
            told.append(
                f"{device} was told the intervals {_numbers(sent)} and obeyed {_numbers(obeyed)}"
            )
    return told


def _numbers(values: list[int]) -> str:
    return ", ".join(map(str, values)) or "none"


def _doubts(seen: _Seen) -> list[str]:
    missing = sorted(seen.planned.keys() - seen.fired)
    doubts = [
        f"planned fault did not happen: {fault}"
        f" ({seen.planned[fault]}){seen.impossible.get(fault, '')}"
        for fault in missing
    ]
    due = ("board", seen.claim, *[READINGS] * seen.reads)
    doubts += [f"not read to the end: {hop}" for hop in due if hop not in seen.complete]
    doubts += _gaps(seen) if seen.ways else ["nothing was produced"]
    if seen.stalled:
        doubts.append("nothing moved any more, and the run gave up waiting")
    if not seen.begun:
        doubts.append("the history has no beginning")
    if not seen.ended:
        doubts.append(BREAKS_OFF)
    return doubts


def _gaps(seen: _Seen) -> Iterator[str]:
    """What was planned and was not produced, and hops at which nothing was seen at all."""
    produced = Counter(
        key.device
        for key, way in seen.ways.items()
        for sighting in way["board"]
        if not sighting.status
    )
    for device, planned in seen.plan.items():
        if produced[device] < planned:
            yield f"{device} produced {produced[device]} of {planned} planned"
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
