"""Findings of a history, from one pass: the checker's result, the faults, and the measurements. In:
a history. Out: `Findings`. Times are seconds since the first event; an interrupted run has findings
up to the interruption.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from itertools import chain
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
"""Limits that are lower bounds; all others are upper bounds."""
HALVES = 8  # smallest number of samples of a process from which its growth is computed


@dataclass(slots=True)
class PlannedFault:
    """A planned fault. t: when it happened, in seconds; None if it did not happen."""

    id: str
    kind: str
    place: str
    t: float | None = None
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a process has used until time `t`. cpu: processor time in s. memory: resident
    memory in bytes. written: bytes written to disk.
    """

    t: float
    pid: int
    cpu: float
    memory: int
    written: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded link that was replayed on one direction of a line. begin, seconds: start and
    length of the part that was used. of: length of the recording. These three are in seconds of the
    recording. frames, lost: number of all and of lost frames in the run. run_s: seconds of the run.
    up_s: seconds with the link up. longest_outage: length to which longer outages were shortened.
    shortened: number of these outages in the recording.
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
    """Findings of a run. links: per line, when the gateway opened (True) and closed its port.
    lines: bytes and harms, per line and direction. sent: per line and direction, frames of the
    reliable link and PUBLISH packets, first ones and retransmissions (`hil.wire.tap`).
    """

    result: Result
    title: str = ""
    seed: int | None = None
    version: str = ""
    seconds: float = 0.0
    bench: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    """Limits of the bench, by name (`hil.bench.tables.Limits`)."""
    faults: dict[str, PlannedFault] = field(default_factory=dict)
    usage: dict[str, list[Usage]] = field(default_factory=lambda: defaultdict(list))
    links: dict[str, list[tuple[float, bool]]] = field(default_factory=lambda: defaultdict(list))
    lines: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    sent: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    replayed: dict[tuple[str, str], Replayed] = field(default_factory=dict)
    """Recorded links that were replayed, by line and direction."""
    coverage: dict[str, dict[str, int]] = field(default_factory=dict)
    """Number of hits of each window, by kind of fault."""
    asked: dict[str, set[str]] = field(default_factory=dict)
    """Windows named by the plan, by kind of fault."""
    arrivals: dict[str, list[float]] = field(default_factory=dict)
    """Times of all sightings, by hop, in ascending order."""
    delays: list[float] = field(default_factory=list)
    """Seconds from the sample to the claimed hop, for each publication that is `ok`, ascending."""
    delays_of: dict[str, list[float]] = field(default_factory=dict)
    """The values of `delays`, by device or client."""
    stored: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    """Time of arrival in the gateway's store, and bytes of payload, by device or client."""

    gateways: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each gateway of a site, numbers of publications: in its store, landed, lost with its
    card."""

    def percentile(self, share: int) -> float | None:
        """Return a percentile of the delays, in seconds; None without delays."""
        return _percentile(self.delays, share)

    def slowest(self, share: int) -> float | None:
        """Return a percentile of the delays of the slowest device, in seconds; None without delays.
        (One percentile over all devices would hide this device.)
        """
        return max(
            (one for of in self.delays_of.values() if (one := _percentile(of, share))),
            default=self.percentile(share),
        )

    def cpu(self, name: str) -> float:
        """Return the seconds of CPU that a service has used, over all its restarts."""
        return sum(
            max(one.cpu for one in self.usage[name] if one.pid == pid)
            for pid in {one.pid for one in self.usage[name]}
        )

    def memory(self, name: str) -> int:
        """Return the largest resident memory of a service, in bytes."""
        return max((one.memory for one in self.usage[name]), default=0)

    def growth(self, name: str) -> float | None:
        """Return by how many bytes the median memory of a service was larger in the last quarter of
        its longest life than in the second quarter; None for a short life. A leak continues to
        grow, a cache that fills does not.
        """
        samples: defaultdict[int, list[Usage]] = defaultdict(list)
        for one in self.usage[name]:
            samples[one.pid].append(one)
        longest = max(samples.values(), key=len, default=[])
        quarter = len(longest) // 4
        if len(longest) < HALVES:
            return None
        second, last = longest[quarter : 2 * quarter], longest[-quarter:]
        return median(one.memory for one in last) - median(one.memory for one in second)

    @property
    def written_per_reading(self) -> float | None:
        """Return the bytes that gateway and uplink wrote to disk, per publication, or None."""
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
        """Return time and payload bytes of each publication that reached the store over a line, in
        order of time. If no line is known, return all publications.
        """
        return sorted(
            one
            for name, stored in self.stored.items()
            if name in self.lines or not self.lines
            for one in stored
        )

    @property
    def payload(self) -> int:
        """Return the payload bytes of the boards' publications that reached the gateway's store."""
        return sum(size for _, size in self._of_boards)

    @property
    def _receiving(self) -> float | None:
        """Return the seconds from the first to the last arrival of a publication in the store."""
        times = [t for t, _ in self._of_boards]
        return times[-1] - times[0] if times and times[-1] > times[0] else None

    @property
    def readings_per_s(self) -> float | None:
        """Return the boards' stored publications per second; None with fewer than two arrivals."""
        return len(self._of_boards) / self._receiving if self._receiving else None

    @property
    def goodput(self) -> float | None:
        """Return the boards' stored payload bytes per second; None with fewer than two arrivals."""
        return self.payload / self._receiving if self._receiving else None

    @property
    def line_share(self) -> float | None:
        """Return the share of payload in the bytes that the boards sent, or None."""
        sent = sum(line["up"]["sent"] for line in self.lines.values())
        return self.payload / sent if sent else None

    def again(self, kind: str) -> int | None:
        """Return how many `frames` or `publishes` were sent again, on all lines and in both
        directions; None without counts.
        """
        counts = [direction for line in self.sent.values() for direction in line.values()]
        return sum(count[f"{kind}_again"] for count in counts) if counts else None

    @property
    def exceeded(self) -> list[str]:
        """Return a sentence for each limit that was broken or could not be measured."""
        growths = [self.growth(name) for name in self.usage]
        measured = {
            "delay_p99_s": self.slowest(99),
            "delay_max_s": self.slowest(100),
            "memory_mb": max(map(self.memory, self.usage), default=0) / 1e6 or None,
            "growth_mb": None
            if not growths or None in growths
            else max(growth for growth in growths if growth is not None) / 1e6,
            "written_per_reading": self.written_per_reading,
            "readings_per_s": self.readings_per_s,
            "goodput": self.goodput,
        }
        return [
            text
            for name, limit in self.limits.items()
            if (text := _broken(name, measured[name], limit))
        ]

    @property
    def is_kept(self) -> bool:
        """Whether the verdict is `holds` and the run kept its limits."""
        return self.result.verdict is Verdict.HOLDS and not self.exceeded

    @property
    def headline(self) -> str:
        """Return the verdict, with a note if the verdict is `holds` but a limit was broken."""
        holds = self.result.verdict is Verdict.HOLDS
        return f"{self.result.verdict}{', but a limit was not kept' * (holds and not self.is_kept)}"

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
    fields = {"outcome": one.outcome, "hop": one.hop, "why": one.why}
    return {**asdict(one.key), **fields, "seen": seen}


def find(history: Path) -> Findings:
    """Return the findings of a history. Raises OncewayError if the file is not a valid history."""
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
    found.delays_of = _delays(found.result)
    found.delays = sorted(chain.from_iterable(found.delays_of.values()))
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
            if "link" in data:  # missing in a history of an earlier version
                found.sent[data["line"]] = data["link"]


def _gateways(events: list[Event], bench: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return the counts of each gateway of a site; {} for a single gateway."""
    stored: dict[str, set[int]] = defaultdict(set)
    landed: dict[str, set[int]] = defaultdict(set)
    died: dict[str, int] = {}
    for event in events:
        data = event.data
        if event.event == "publication" and event.hop in ("spool", "batch"):
            gateway = str(data["origin"]).partition("/")[0]
            # a row may leave the store between two looks of the rig
            stored[gateway].add(data["position"])
            if event.hop == "batch":
                landed[gateway].add(data["position"])
        elif event.event == "happened" and "died" in data:
            died[data["gateway"]] = data["died"]
    return {
        name: {"stored": len(stored[name]), "landed": len(landed[name]), "died": died.get(name, 0)}
        for name in (table["name"] for table in bench.get("gateway", ()))
    }


def _delays(result: Result) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for publication in result.publications:
        if publication.outcome is Outcome.OK:
            way = publication.way
            delay = max(0, way[result.claim][0].t - way["board"][0].t) / 1e9
            found[publication.key.device].append(delay)
    return {device: sorted(of) for device, of in found.items()}


def _percentile(delays: list[float], share: int) -> float | None:
    return delays[max(0, -(-len(delays) * share // 100) - 1)] if delays else None


def _broken(name: str, value: float | None, limit: float) -> str | None:
    """Return in words how a limit was broken; None if it was kept."""
    if value is None:
        return f"{name} is unknown; the limit is {limit:g}"
    if name in AT_LEAST:
        return f"{name} is {value:.1f}, but must be at least {limit:g}" if value < limit else None
    return f"{name} is {value:.1f}, but must not exceed {limit:g}" if value > limit else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
