"""The report of `onceway uplink status`. In: the gateway's database and configuration. Out:
figures, as JSON or as text.
"""

import json
import os
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.commands.control_client import NotRunning, ask
from gateway.config import UplinkSection
from gateway.errors import OncewayError
from gateway.system.lock import holder
from gateway.uplink.holding import reasons
from gateway.uplink.landing.base import Way
from gateway.uplink.spool import OUTAGE, RIVAL, WAY, Spool, Totals

DAY_US = 86_400 * 1_000_000
MINUTE_US = 60 * 1_000_000
RIVAL_US = 7 * DAY_US
"""Time, in µs, for which a status shows another gateway with the same name, from when it was
noticed.
"""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of an uplink: waiting rows, landed batches, remaining room.

    running: description of the uplink's process; None if it does not run. rows, bytes: number and
    size of all rows of the spool, as the broker counts them. waiting: number of rows in no batch
    yet. clockless: whether waiting rows have no time, because this machine's clock is not
    synchronised yet; the uplink waits up to two minutes for it. cut, landed: numbers of the newest
    batch and of the newest landed batch. landed_at: when the newest landed batch landed, µs UTC.
    sent: totals of landed batches and messages, and of failed attempts. outage: its beginning (µs
    UTC) and error, or None. way: how the landing place refuses a name in use (`Way`), as last
    proven. rival: a gateway with the same name: when it was seen (µs UTC), and a text.
    bytes_per_day: bytes that entered the spool in the last day. max_bytes: size limit of the spool,
    None if unknown. room_bytes: remaining bytes until the limit is reached or the disk is full.
    lasts_s: seconds until then at the present rate; None if the rate is 0. held_by: reasons why
    readings have not landed yet.
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
    way: str | None
    rival: dict[str, Any] | None
    bytes_per_day: int
    max_bytes: int | None
    room_bytes: int
    lasts_s: int | None
    held_by: list[str]

    def outage_s(self, now: float) -> float:
        """Return the seconds since the beginning of the outage; 0 if the landing place is
        reachable. now: seconds since 1970.
        """
        return 0.0 if self.outage is None else max(0.0, now - self.outage["since"] / 1e6)

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        found["sent"]["readings"] = self.sent.messages  # its name until 0.2.0
        return found

    def as_text(self) -> str:
        sent = self.sent
        last = f", the last at {_moment(self.landed_at)}" if self.landed_at else ""
        lines = [
            f"gateway   {self.gateway}, epoch {self.epoch}",
            f"uplink    {self.running or 'not running'}",
            (
                f"spool     messages: {self.rows:,}, bytes: {self.bytes:,}, messages in no batch"
                f" yet: {self.waiting:,}"
            ),
            f"batches   {self.cut:,} cut, {self.landed:,} landed{last}{_way(self.way)}",
            (
                f"sent      messages: {sent.messages:,}, bytes: {sent.bytes:,}, batches:"
                f" {sent.batches:,}, failed tries: {sent.failures:,}"
            ),
        ]
        if sent.held:
            text = "damaged rows were set aside in batches/damaged-rows.jsonl, and do not land"
            lines.append(f"held      {text}: {sent.held:,}")
        if self.clockless:
            lines.append(
                "clock     not synchronised: messages without a time wait up to two minutes for it"
            )
        if self.outage:
            lines.append(f"outage    since {_moment(self.outage['since'])}: {self.outage['error']}")
        lines += [f"held by   {reason}" for reason in self.held_by]
        if self.rival:
            lines.append(f"rival     {_moment(self.rival['seen'])}: {self.rival['what']}")
        full = (
            "never fills at this rate"
            if self.lasts_s is None
            else f"lasts {_duration(self.lasts_s)} without an uplink"
        )
        bound = (
            "spool"
            if self.max_bytes is not None and self.bytes + self.room_bytes >= self.max_bytes
            else "disk"
        )
        lines.append(
            f"room      {self.room_bytes:,} bytes until the {bound} is full, {self.bytes_per_day:,}"
            f" a day: {full}"
        )
        return "\n".join(lines)


def look(
    spool: Spool, data: Path, max_bytes: int | None = None, settings: UplinkSection | None = None
) -> Status:
    origin = spool.origin()
    volume = spool.volume(time.time_ns() // 1000 - DAY_US, _counted(data))
    number, _ = spool.last_cut()
    landed, landed_at = spool.last_landed()
    outage = spool.get(OUTAGE)
    per_day = round(volume.recent_bytes * DAY_US / max(volume.span_us, MINUTE_US))
    disk = os.statvfs(data)
    running = holder(data / "uplink.lock")
    room = disk.f_bavail * disk.f_frsize
    if max_bytes is not None:
        room = min(room, max(0, max_bytes - volume.bytes))
    return Status(
        gateway=origin.gateway,
        epoch=origin.epoch,
        running=running,
        rows=volume.rows,
        bytes=volume.bytes,
        waiting=volume.waiting,
        clockless=spool.waits_for_clock(),
        cut=number,
        landed=landed,
        landed_at=landed_at,
        sent=spool.totals(),
        outage=json.loads(outage) if outage else None,
        way=spool.get(WAY),
        rival=_rival(spool.get(RIVAL)),
        bytes_per_day=per_day,
        max_bytes=max_bytes,
        room_bytes=room,
        lasts_s=room * 86_400 // per_day if per_day else None,
        held_by=reasons(spool, settings, running is not None, bool(outage), time.time())
        if volume.rows
        else [],
    )


def _counted(data: Path) -> tuple[int, int] | None:
    """Return rows and bytes of the spool, as the running gateway counts them. None if no gateway
    runs, or this account may not ask it.
    """
    try:
        (row,) = ask(data, do="status")
        return int(row["spool"]["messages"]), int(row["spool"]["bytes"])
    except (NotRunning, OncewayError, ValueError, KeyError):
        return None


def _way(way: str | None) -> str:
    """Return the end of the status line about batches: how the landing place refuses a name in use.
    Empty before the first proof.
    """
    return f"; at the landing place, {Way(way).text}" if way in list(Way) else ""


def _rival(text: str | None) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(text) if text else None
    if found is None or not 0 <= time.time_ns() // 1000 - found["seen"] < RIVAL_US:
        return None
    return {"seen": found["seen"], "what": found["what"]}


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _duration(seconds: int) -> str:
    if seconds >= 3650 * 86_400:
        return "more than ten years"
    if seconds >= 2 * 86_400:
        return f"{seconds // 86_400} days"
    return f"{seconds // 3600} hours" if seconds >= 2 * 3600 else f"{seconds // 60} minutes"
