"""What a history shows, in one pass, ready to be told: the checker's result, the faults, and what
was measured on the way.

In: a history. Out: `Findings`. Times are seconds since the first event; a run that was interrupted
has findings as far as it got.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from gateway.errors import OncewayError
from hil.judge.checker import Result, Verdict, check
from hil.judge.coverage import asked, coverage
from hil.judge.publication import Outcome, Publication
from hil.observe.history import COMMAND, HOPS, NO_HISTORY, Event, read, taking

PERCENTILES = (50, 90, 99, 100)
AT_LEAST = ("readings_per_s", "goodput")
"""Limits that are a floor; the others are a ceiling."""
HALVES = 8  # samples of a process below which nothing is said of its growth


@dataclass(slots=True)
class PlannedFault:
    """t: when it happened, None if it did not."""

    id: str
    kind: str
    place: str
    t: float | None = None
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process at a moment. cpu: seconds used; memory: bytes resident; written: bytes to
    disk.
    """

    t: float
    pid: int
    cpu: float
    memory: int
    written: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded link on one direction of a line. begin, seconds, of: where it began, how much went
    by, how long it is, in the recording's seconds. frames, lost: ours. run_s, up_s: our seconds,
    and those in which the link was up. longest_outage: what longer ones were shortened to; so many
    of the recording were (shortened).
    """

    trace: str
    begin: float
    seconds: float
    of: float
    frames: int
    lost: int
    run_s: float
    up_s: float
    longest_outage: float
    shortened: int


@dataclass(slots=True)
class Findings:
    """links: per line, when the gateway opened (True) and closed its port. lines: bytes and harms
    per line and direction; sent: frames of the reliable link and PUBLISH packets per line and
    direction, and how many of them were sent again (`hil.wire.tap`).
    """

    result: Result
    title: str = ""
    seed: int | None = None
    version: str = ""
    seconds: float = 0.0
    bench: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    """Of the bench, by name (`hil.bench.tables.Limits`)."""
    faults: dict[str, PlannedFault] = field(default_factory=dict)
    usage: dict[str, list[Usage]] = field(default_factory=lambda: defaultdict(list))
    links: dict[str, list[tuple[float, bool]]] = field(default_factory=lambda: defaultdict(list))
    lines: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    sent: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    replayed: dict[tuple[str, str], Replayed] = field(default_factory=dict)
    """Recorded links, by line and direction."""
    coverage: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often each window was hit, by kind of fault."""
    asked: dict[str, set[str]] = field(default_factory=dict)
    """The windows that the plan has named, by kind of fault."""
    arrivals: dict[str, list[float]] = field(default_factory=dict)
    """Of every sighting at each hop, in order of time."""
    delays: list[float] = field(default_factory=list)
    """From sample to claim, of each publication that is ok, in order of length."""
    stored: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    """By device or client: when a publication reached the gateway's store, and how many bytes of
    payload it has."""

    gateways: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of each of several: publications in its store, landed, and gone with its card."""

    def percentile(self, share: int) -> float | None:
        """Of the delays, in seconds; None if there are none."""
        return self.delays[max(0, -(-len(self.delays) * share // 100) - 1)] if self.delays else None

    def cpu(self, name: str) -> float:
        """Seconds of CPU that a service has used, over all its restarts."""
        return sum(
            max(one.cpu for one in self.usage[name] if one.pid == pid)
            for pid in {one.pid for one in self.usage[name]}
        )

    def memory(self, name: str) -> int:
        """Most bytes resident of a service."""
        return max((one.memory for one in self.usage[name]), default=0)

    def growth(self, name: str) -> float | None:
        """Bytes by which a service was larger, in the median, in the last quarter of its longest
        life than in the second; None if it did not live long enough to say. A leak goes on growing,
        a cache that fills does not.
        """
        lives: defaultdict[int, list[Usage]] = defaultdict(list)
        for one in self.usage[name]:
            lives[one.pid].append(one)
        longest = max(lives.values(), key=len, default=[])
        quarter = len(longest) // 4
        if len(longest) < HALVES:
            return None
        second, last = longest[quarter : 2 * quarter], longest[-quarter:]
        return median(one.memory for one in last) - median(one.memory for one in second)

    @property
    def written_per_reading(self) -> float | None:
        """Bytes that gateway and uplink wrote to disk, per publication; None if that was not
        measured.
        """
        services = [samples for samples in self.usage.values() if samples]
        # the last sample of each process counts
        pids = {one.pid: one.written for samples in services for one in samples}
        return (
            sum(pids.values()) / len(self.result.publications)
            if pids and self.result.publications
            else None
        )

    @property
    def _of_boards(self) -> list[tuple[float, int]]:
        """What came through lines into the store, in order of time; where no line is known, all."""
        return sorted(
            one
            for name, stored in self.stored.items()
            if name in self.lines or not self.lines
            for one in stored
        )

    @property
    def payload(self) -> int:
        """Bytes that the boards' publications brought to the gateway's store."""
        return sum(size for _, size in self._of_boards)

    @property
    def _receiving(self) -> float | None:
        """Seconds in which the gateway's store took publications of the boards."""
        times = [t for t, _ in self._of_boards]
        return times[-1] - times[0] if times and times[-1] > times[0] else None

    @property
    def readings_per_s(self) -> float | None:
        """QoS 2 exchanges through the boards' lines, all together."""
        return len(self._of_boards) / self._receiving if self._receiving else None

    @property
    def goodput(self) -> float | None:
        """Bytes of payload per second, of all boards together, that reached the gateway's store."""
        return self.payload / self._receiving if self._receiving else None

    @property
    def line_share(self) -> float | None:
        """Bytes of payload for each byte that the boards sent."""
        sent = sum(line["up"]["sent"] for line in self.lines.values())
        return self.payload / sent if sent else None

    def again(self, what: str) -> int | None:
        """How many `frames` or `publishes` were sent again, on all lines and both ways; None if
        nobody counted.
        """
        counts = [direction for line in self.sent.values() for direction in line.values()]
        return sum(count[f"{what}_again"] for count in counts) if counts else None

    @property
    def exceeded(self) -> list[str]:
        """Limits that were not kept, or not measured, told."""
        growths = [self.growth(name) for name in self.usage]
        measured = {
            "delay_p99_s": self.percentile(99),
            "delay_max_s": self.percentile(100),
            "memory_mb": max(map(self.memory, self.usage), default=0) / 1e6 or None,
            "growth_mb": None
            if not growths or None in growths
            else max(growth for growth in growths if growth is not None) / 1e6,
            "written_per_reading": self.written_per_reading,
            "readings_per_s": self.readings_per_s,
            "goodput": self.goodput,
        }
        return [
            told
            for name, limit in self.limits.items()
            if (told := _broken(name, measured[name], limit))
        ]

    @property
    def passed(self) -> bool:
        """Whether the promise holds, within the limits."""
        return self.result.verdict is Verdict.HOLDS and not self.exceeded

    @property
    def headline(self) -> str:
        """The verdict, and whether there is more to say of a run that holds."""
        holds = self.result.verdict is Verdict.HOLDS
        return f"{self.result.verdict}{', but a limit was not kept' * (holds and not self.passed)}"

    def to_json(self) -> dict[str, Any]:
        result = self.result
        return {
            "title": self.title,
            "seed": self.seed,
            "version": self.version,
            "seconds": round(self.seconds, 3),
            "verdict": result.verdict,
            "reasons": result.reasons,
            "exceeded": self.exceeded,
            "last_words": result.last_words,
            "claim": result.claim,
            "readings": {
                "produced": result.produced,
                "arrived": result.rows,
                "statuses": result.statuses,
            },
            "commands": result.commands,
            "offenders": [_offender(one) for one in result.offenders],
            "outcomes": {outcome: result.count(outcome) for outcome in Outcome},
            "hops": {hop: len(times) for hop, times in self.arrivals.items()},
            "faults": {
                "planned": sum(fault.kind != COMMAND for fault in self.faults.values()),
                "happened": dict(result.faults),
            },
            "delay_s": {f"p{share}": _rounded(self.percentile(share)) for share in PERCENTILES},
            "readings_per_s": _rounded(self.readings_per_s),
            "goodput_bytes_per_s": _rounded(self.goodput),
            "line_share": _rounded(self.line_share),
            "frames_again": self.again("frames"),
            "publishes_again": self.again("publishes"),
            "cpu_s": {name: round(self.cpu(name), 2) for name in self.usage},
            "memory_bytes": {name: self.memory(name) for name in self.usage},
            "growth_bytes": {name: self.growth(name) for name in self.usage},
            "written_per_reading": _rounded(self.written_per_reading),
            "coverage": self.coverage,
            "gateways": self.gateways,
            "lines": self.lines,
            "replayed": [
                {"line": line, "direction": direction, **asdict(one)}
                for (line, direction), one in sorted(self.replayed.items())
            ],
            "bench": self.bench,
            "sent": self.sent,
        }


def _offender(one: Publication) -> dict[str, Any]:
    seen = {hop: len(one.way[hop]) for hop in HOPS}
    told = {"outcome": one.outcome, "hop": one.hop, "why": one.why}
    return {**asdict(one.key), **told, "seen": seen}


def find(history: Path) -> Findings:
    """Raises OncewayError for a file that is no history."""
    events = list(read(history))
    if not events and not history.stat().st_size:
        raise OncewayError("the file is empty", str(history), NO_HISTORY)
    return findings(events)


def findings(events: list[Event]) -> Findings:
    found = Findings(check(events), coverage=coverage(events), asked=asked(events))
    start = min((event.t for event in events), default=0)
    arrivals = defaultdict(list)
    for event in events:
        t = (event.t - start) / 1e9
        found.seconds = max(found.seconds, t)
        with taking(event):
            _take(found, event, t)
        if event.event == "publication":
            arrivals[event.hop].append(t)
    found.gateways = _gateways(events, found.bench)
    found.arrivals = {hop: sorted(arrivals[hop]) for hop in HOPS}
    found.delays = sorted(_delays(found.result))
    return found


def _take(found: Findings, event: Event, t: float) -> None:
    data = event.data
    match event.hop, event.event:
        case "rig", "run":
            found.title, found.seed = data["bench"]["title"], data["plan"]["seed"]
            found.version, found.bench = data["version"], data["bench"]
            found.limits = {
                name: limit
                for name, limit in data["bench"].get("limits", {}).items()
                if limit is not None
            }
        case _, "planned":
            place = f"{data['at']} {data['counter']}" if data.get("counter") else ""
            place = "the whole run" if data.get("whole_run") else place
            found.faults[data["fault"]] = PlannedFault(data["fault"], data["kind"], place)
        case _, "happened" if fault := found.faults.get(data["fault"]):
            fault.t, fault.evidence = t, data["evidence"]
        case "spool", "publication":
            found.stored[data["device"]].append((t, len(data["payload"]) // 2))
        case service, "usage":
            found.usage[service].append(
                Usage(t, data["pid"], data["cpu"], data["memory"], data["written"])
            )
        case "wire", ("open" | "close") as turned:
            found.links[data["line"]].append((t, turned == "open"))
        case "wire" | "air", "replayed":
            names = Replayed.__dataclass_fields__
            found.replayed[data["line"], data["direction"]] = Replayed(
                **{name: data[name] for name in names}
            )
        case "wire", "count":
            found.lines[data["line"]] = {"up": data["up"], "down": data["down"]}
            if "link" in data:  # not in a history of an earlier version
                found.sent[data["line"]] = data["link"]


def _gateways(events: list[Event], bench: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Nothing of a gateway that is alone."""
    stored: dict[str, set[int]] = defaultdict(set)
    landed: dict[str, set[int]] = defaultdict(set)
    gone: dict[str, int] = {}
    for event in events:
        data = event.data
        if event.event == "publication" and event.hop in ("spool", "batch"):
            gateway = str(data["origin"]).partition("/")[0]
            # a row may leave the store before anybody has looked
            stored[gateway].add(data["position"])
            if event.hop == "batch":
                landed[gateway].add(data["position"])
        elif event.event == "happened" and "died" in data:
            gone[data["gateway"]] = data["died"]
    return {
        name: {"stored": len(stored[name]), "landed": len(landed[name]), "died": gone.get(name, 0)}
        for name in (table["name"] for table in bench.get("gateway", ()))
    }


def _delays(result: Result) -> Iterable[float]:
    for publication in result.publications:
        if publication.outcome is Outcome.OK:
            way = publication.way
            yield max(0, way[result.claim][0].t - way["board"][0].t) / 1e9


def _broken(name: str, value: float | None, limit: float) -> str | None:
    """What is wrong with a limit; None if it was kept."""
    if value is None:
        return f"{name} is unknown, and the limit is {limit:g}"
    if name in AT_LEAST:
        return f"{name} is {value:.1f}, and must be at least {limit:g}" if value < limit else None
    return f"{name} is {value:.1f}, and must not exceed {limit:g}" if value > limit else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
