"""What `onceway uplink status` says. In: the gateway's database and configuration. Out: figures, as JSON or as text."""

import json
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.lock import holder
from gateway.uplink.spool import OUTAGE, Spool, Totals

DAY_US = 86_400 * 1_000_000
MINUTE_US = 60 * 1_000_000


@dataclass(frozen=True, slots=True)
class Status:
    """What waits, what has landed, how long it can go on.

    running: the process, None when there is none. rows, bytes: in the spool, as the broker counts them. waiting: rows in no batch yet.
    clockless: some of them have no UTC, since this machine's clock is not synchronised yet; the uplink waits up to two minutes for it.
    landed_at: µs UTC of the newest landed batch. sent: what has landed so far, and tries that failed. outage: None, or since (µs UTC) and
    error. bytes_per_day: into the spool, over the last day. max_bytes: bound of the spool, lasts_s: seconds until it is reached at that
    rate; both None when not known.
    """

    gateway: str
    epoch: str
    running: str | None
    rows: int
    bytes: int
    waiting: int
    clockless: bool
    cut: int
    landed: int
    landed_at: int | None
    sent: Totals
    outage: dict[str, Any] | None
    bytes_per_day: int
    max_bytes: int | None
    lasts_s: int | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> str:
        sent = self.sent
        when = f", the last at {_moment(self.landed_at)}" if self.landed_at else ""
        lines = [
            f"gateway   {self.gateway}, epoch {self.epoch}",
            f"uplink    {self.running or 'not running'}",
            f"spool     readings: {self.rows:,}, bytes: {self.bytes:,}, readings in no batch yet: {self.waiting:,}",
            f"batches   {self.cut:,} cut, {self.landed:,} landed{when}",
            f"sent      readings: {sent.readings:,}, bytes: {sent.bytes:,}, batches: {sent.batches:,}, failed tries: {sent.failures:,}",
        ]
        if self.clockless:
            lines.append("clock     not synchronised: readings without a time wait up to two minutes for it")
        if self.outage:
            lines.append(f"outage    since {_moment(self.outage['since'])}: {self.outage['error']}")
        if self.max_bytes is not None:
            full = "lasts for ever at this rate" if self.lasts_s is None else f"lasts {_duration(self.lasts_s)} without an uplink"
            lines.append(f"room      {self.bytes_per_day:,} bytes a day into {self.max_bytes:,}: {full}")
        return "\n".join(lines)


def look(spool: Spool, data: Path, max_bytes: int | None = None) -> Status:
    origin = spool.origin()
    volume = spool.volume(time.time_ns() // 1000 - DAY_US)
    number, _ = spool.last_cut()
    landed, landed_at = spool.last_landed()
    outage = spool.get(OUTAGE)
    per_day = round(volume.recent_bytes * DAY_US / max(volume.span_us, MINUTE_US))
    return Status(
        gateway=origin.gateway,
        epoch=origin.epoch,
        running=holder(data / "uplink.lock"),
        rows=volume.rows,
        bytes=volume.bytes,
        waiting=volume.waiting,
        clockless=spool.lacks_time(volume.waiting),
        cut=number,
        landed=landed,
        landed_at=landed_at,
        sent=spool.totals(),
        outage=json.loads(outage) if outage else None,
        bytes_per_day=per_day,
        max_bytes=max_bytes,
        lasts_s=max(0, max_bytes - volume.bytes) * 86_400 // per_day if max_bytes and per_day else None,
    )


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _duration(seconds: int) -> str:
    if seconds >= 2 * 86_400:
        return f"{seconds // 86_400} days"
    return f"{seconds // 3600} hours" if seconds >= 2 * 3600 else f"{seconds // 60} minutes"
