"""`onceway ingest report`: progress of each gateway's batches, and problems.

In: the landing place, the table's folder `_onceway` (counts, seen ranges), and the tables
`publications` and `…_quarantine`, read by delta-rs without Spark. Out: a `Report`. Missing
sequences are computed from the newest snapshot, which may be some micro-batches old; the report
contains its version.
"""

import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.errors import OncewayError
from gateway.ingest.dedup import snapshot
from gateway.ingest.dedup.gaps import DeviceGaps, gaps
from gateway.ingest.landing import keys
from gateway.ingest.landing.offsets import LOOK_UPS_AT_ONCE, Feeds, Unreadable
from gateway.ingest.landing.place import NOTHING_LANDED, Landing, error_text
from gateway.ingest.landing.trust import Trust
from gateway.ingest.report import counters, health, job, stopped, tables
from gateway.ingest.report.counters import FeedTotal
from gateway.ingest.report.health import TableHealth
from gateway.ingest.report.job import Job
from gateway.system import gateway_name
from gateway.system.amounts import amount, are

DEVICES_SHOWN = 20
REFUSED_DAYS = 7


@dataclass(frozen=True, slots=True)
class FeedReport:
    """The state of one feed.

    feed: GATEWAY/EPOCH; only GATEWAY if the gateway's feeds cannot be listed. taken: number of the
    newest batch in the table. landed: number of the newest batch that landed without a gap before
    it; None if the landing place has no readable batch of this feed. rows: number of rows in the
    table now. doubles: number of duplicates left out. quarantine: number of batches in quarantine.
    at: time of the last rows (UTC). lag_s: seconds since the oldest batch that the table lacks has
    landed. held: reason why the feed is held, or None. held_s: seconds for which it has been held,
    if known.
    """

    feed: str
    taken: int  # prose: JSON key
    landed: int | None
    rows: int
    doubles: int
    quarantine: int
    at: str
    lag_s: float | None = None
    held: str | None = None  # prose: JSON key
    held_s: float | None = None

    @property
    def is_gone(self) -> bool:
        """Whether no batch of this feed is at the landing place any more."""
        return self.landed is None and self.held is None

    def problems(self, max_lag_s: float) -> list[str]:
        found = [f"held: {self.held}"] if self.held else []
        if self.is_gone:
            found.append(f"{self.feed} has no batch at the landing place any more")
        if self.quarantine:
            found.append(
                f"{self.feed}: {are(self.quarantine, 'batch', many='batches')} in quarantine"
            )
        if (self.lag_s or 0.0) > max_lag_s:
            found.append(
                f"{self.feed} is {self.lag_s:.0f} s behind, more than --max-lag {max_lag_s:.0f} s"
            )
        return found


@dataclass(frozen=True, slots=True)
class Report:
    """The report.

    saved: time at which the counters were saved (UTC). spark: last progress in the counters.
    covers: version of the table for which `devices` was computed. conflicts: number of payload
    conflicts. refused: gateways whose name another gateway has tried to use in the last days, each
    with that other gateway's host and the time. stopped: the error that ended the ingest, if it has
    not run since then. job: the last known state of the stream. tables: the state of each table.
    """

    feeds: list[FeedReport]
    devices: list[DeviceGaps] = field(default_factory=list)
    covers: int | None = None
    saved: str | None = None
    spark: dict[str, Any] = field(default_factory=dict)
    conflicts: int = 0
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    stopped: str | None = None
    job: Job | None = None
    tables: list[TableHealth] = field(default_factory=list)

    @property
    def last_rows(self) -> str:
        """Time at which the ingest last added rows (UTC); empty if it never did."""
        return max((one.at for one in self.feeds), default="")

    @property
    def missing(self) -> int:
        """Number of missing sequences of all devices."""
        return sum(one.missing for one in self.devices)

    def problems(self, max_lag_s: float, max_missing: int | None = None) -> list[str]:
        """Return the problems that need a person, one sentence for each."""
        found = [] if self.feeds else [NOTHING_LANDED]
        found += [self.stopped] if self.stopped else []
        if self.job is not None and self.job.state == "silent":
            found.append(f"the ingest has been {self.job}")
        found += [f"table {one.name}: {one.flaw}" for one in self.tables if one.flaw]
        found += [text for one in self.feeds for text in one.problems(max_lag_s)]
        found += [
            f"another gateway named {gateway} was refused (host {host}, {at})"
            for gateway, host, at in self.refused
        ]
        if self.conflicts:
            found.append(_conflicts(self.conflicts))
        if max_missing is not None and self.missing > max_missing:
            found.append(
                f"{are(self.missing, 'sequence')} missing, more than --max-missing {max_missing}"
            )
        return found


def make(landing: Landing, table: str, trusted: str | None = None) -> Report:
    """Return the report. trusted: URL of the file of keys, if it is not beside the table. Raises
    OncewayError if there is no such table, and OSError if the landing place cannot be reached.
    """
    landing.any_feed()
    signed = tables.wants_signatures(table)
    taken_by_feed = tables.progress_of_feeds(table)
    quarantine: defaultdict[str, list[int]] = defaultdict(list)
    files = tables.TableFolder(table)
    heard = job.look(files)
    rows, states = _counted(table, health.look(table, heard is not None and heard.running))
    counted = counters.load(files)
    for feed, number in tables.in_quarantine(table) if _readable(states, "quarantine") else ():
        quarantine[feed].append(number)
    totals = counted.feeds if counted else {}
    seen = snapshot.load(files, counted.table) if counted else None
    trust = Trust(trusted or keys.keys_url(table), signed)
    trust.refresh()
    source = Feeds(landing, trust=trust)

    def one(feed: str) -> FeedReport:
        total, damaged = totals.get(feed, FeedTotal()), quarantine[feed]
        last = taken_by_feed.get(feed, 0)
        return _feed(
            landing,
            source,
            FeedReport(feed, last, last, rows[feed], total.doubles, len(damaged), total.at),
        )

    with ThreadPoolExecutor(LOOK_UPS_AT_ONCE) as pool:
        names = sorted({*source.names(), *taken_by_feed, *rows})
        feeds = list(pool.map(one, names))
    gateways = {name.partition("/")[0] for name in names}
    feeds += [
        FeedReport(
            gateway_name.shown(name), 0, None, 0, 0, 0, "", held=str(closed), held_s=closed.age
        )
        for name, closed in sorted(source.closed.items())
        if name not in gateways
    ]
    return Report(
        feeds,
        list(gaps(seen.ranges)) if seen else [],
        seen.covers if seen else None,
        counted.saved if counted else None,
        counted.spark if counted else {},
        tables.conflicts(table) if _readable(states, "conflicts") else 0,
        _refused(landing, sorted({one.feed.partition("/")[0] for one in feeds})),
        stopped.why(files),
        heard,
        states,
    )


def _counted(table: str, states: list[TableHealth]) -> tuple[Counter[str], list[TableHealth]]:
    """Return the number of rows of each feed in the table, and `states`. If the rows cannot be
    counted, return no numbers, and `states` with the reason as the table's flaw. Raises
    OncewayError for an error with a remedy, such as a wrong path.
    """
    name = table.rstrip("/")
    try:
        return tables.rows_by_feed(table)[0], states
    except OncewayError as error:
        if error.hint:
            raise
        return Counter(), [
            replace(one, flaw=one.flaw or error.what) if one.name == name else one for one in states
        ]


def _readable(states: list[TableHealth], suffix: str) -> bool:
    return not any(one.rows is None and one.name.endswith(f"_{suffix}") for one in states)


def _conflicts(count: int) -> str:
    return (
        f"{amount(count, 'publication')} with the key of another publication, but another payload"
    )


def text(report: Report) -> str:
    """Return the report as text for users."""
    columns = ("gateway/epoch", "taken", "landed", "lag", "rows", "doubles", "quarantine")
    lines = [
        (
            gateway_name.shown(one.feed),
            one.taken,
            "-" if one.landed is None else one.landed,
            "" if one.lag_s is None else f"{one.lag_s:.0f} s",
            one.rows,
            one.doubles,
            one.quarantine,
        )
        for one in report.feeds
    ]
    widths = [
        max(len(str(line[column])) for line in (columns, *lines)) for column in range(len(columns))
    ]
    table = [
        "  ".join(
            f"{cell:{'<' if not column else '>'}{widths[column]}}"
            for column, cell in enumerate(line)
        ).rstrip()
        for line in (columns, *lines)
    ]
    held_lines = [f"held: {one.held}" for one in report.feeds if one.held]
    missing = [
        f"missing: {amount(one.missing, 'sequence')} of {one.device} (incarnation"
        f" {one.incarnation}), the first {one.gaps[0][0]}"
        for one in report.devices[:DEVICES_SHOWN]
    ]
    if len(report.devices) > DEVICES_SHOWN:
        missing.append(
            f"missing: sequences of {amount(len(report.devices) - DEVICES_SHOWN, 'more device')}"
            " (--json shows all)"
        )
    spark = (
        [
            f"last micro-batch: {report.spark['ms'].get('triggerExecution', 0) / 1000:.1f} s, at"
            f" {report.spark['at']}"
        ]
        if report.spark
        else []
    )
    conflicts = [f"conflicts: {_conflicts(report.conflicts)}"] if report.conflicts else []
    refused = [
        f"refused: another gateway named {gateway} (host {host}, {at}). Its readings"
        " stay in its spool until that gateway has a name of its own. This is reported"
        f" for {REFUSED_DAYS} days"
        for gateway, host, at in report.refused
    ]
    none = [] if report.feeds else [NOTHING_LANDED]
    ended = [f"stopped: {report.stopped}"] if report.stopped else []
    ended += [f"job: {report.job}"] if report.job else []
    ended += [f"last rows: {report.last_rows}"] if report.last_rows else []
    ended += [f"table: {one.name}: {one.flaw}" for one in report.tables if one.flaw]
    written = [*table, *none, *ended, *held_lines, *refused, *conflicts, *missing, *spark]
    return "\n".join(map(gateway_name.shown, written))


def _refused(landing: Landing, gateways: list[str]) -> list[tuple[str, str, str]]:
    with ThreadPoolExecutor(LOOK_UPS_AT_ONCE) as pool:
        notes = zip(gateways, pool.map(landing.refused, gateways), strict=True)
    since = (datetime.now(UTC) - timedelta(days=REFUSED_DAYS)).isoformat()
    return [(gateway, *note) for gateway, note in notes if note is not None and note[1] > since]


def _feed(landing: Landing, source: Feeds, report: FeedReport) -> FeedReport:
    """Return the report of a feed, with its state at the landing place added."""
    try:
        return _looked_at(landing, source, report)
    except OSError as error:
        landing.refuse_outage(error)
        unreadable = Unreadable(report.feed, error_text(error), time.time())
        return replace(report, landed=None, held=str(unreadable))


def _looked_at(landing: Landing, source: Feeds, report: FeedReport) -> FeedReport:
    landed = landing.newest(report.feed, report.taken)
    cleaned = not landing.has(report.feed, landed)  # then the folder is short: list it
    if cleaned and landing.after(report.feed, 0) is None:
        return replace(report, landed=None)
    if landed > report.taken:
        landing.manifest(
            report.feed, report.taken + 1
        )  # raises if the ingest cannot read the next manifest
    hole = source.hole(report.feed, landed, surely=cleaned)
    since = landing.modified(report.feed, report.taken + 1) if landed > report.taken else None
    lag = None if since is None else max(0.0, time.time() - since)
    not_trusted = source.senders.not_trusted(report.feed)
    return replace(
        report,
        landed=landed,
        lag_s=lag,
        held=f"{report.feed}: {not_trusted}" if not_trusted else str(hole) if hole else None,
        held_s=hole.age if hole else None,
    )
