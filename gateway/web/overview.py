"""The first view of the page. In: a gateway's parts, and samples of the last two hours. Out:
problems with their remedies, counts along the path of a reading, and when the spool will be full.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gateway import __version__
from gateway.bridge.status import LACKING, REMEDIES, BridgeStatus
from gateway.bridge.status import problems as bridge_problems
from gateway.broker.spool import ROW_OVERHEAD
from gateway.system.amounts import wait
from gateway.web.health import Problem, problems
from gateway.web.source import Source
from gateway.web.uplink import UplinkState

SAMPLES = 120
SAMPLE_S = 60.0
LATE_S = 3600.0
"""Seconds that a reading may wait for the uplink before the delay is reported as a problem."""
DAY_S = 86_400
_PAYLOAD = 60
"""While the spool is empty, a reading is assumed to have this many bytes of topic and payload."""

_TODO = {
    "store": "Look at the disk: sudo onceway doctor",
    "spool": "See why the waiting batches do not land: sudo onceway uplink status",
    "listeners": "Correct `bind` and reload, or see this machine's addresses: ip address",
    "clients": "Give each client an identifier of its own; see sudo onceway session list",
    "publishers": "Make room as the problems above say, or see: sudo onceway session list",
    "serial": "Plug the board in, or stop the program that uses its port: onceway board ports",
    "boards": "Look at the access rules: sudo onceway gateway check-config",
    "radio": "Plug the modem in, or see its error: sudo onceway radio status",
    "site": "Make sure that the member runs and can be reached: sudo onceway site status",
    "backup": "See why: journalctl -u onceway-backup; try it: systemctl start onceway-backup",
    "notify": "Check [notify] in the configuration, then send a test: sudo onceway notify test",
    "jobs": "See why: journalctl -u onceway-gateway",
    "uplink": "Look at the landing place: sudo onceway uplink status",
    "process": "Start it: sudo systemctl start onceway-uplink",
    "late": "Look at the landing place: sudo onceway uplink status",
    "stranded": "Add [uplink], or discard the messages: sudo onceway spool discard",
    "clock": "Check the network; `timedatectl` shows whether the clock is set from it",
    "restored": "Read what a restore means in gateway/README.md",
    **REMEDIES,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: totals since the start, the number of waiting rows, and whether the uplink was
    down.
    """

    received: int
    waiting: int
    landed: int | None
    """Landed messages; None without an uplink, or if its state could not be read."""
    down: bool


class History:
    """The newest samples, at most SAMPLES + 1. A sample is added every SAMPLE_S seconds."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES + 1)
        self._spools = True
        """Whether new rows of the spool are counted. If there is no uplink, publications of all
        clients are counted instead.
        """

    def add(self, source: Source, uplink: UplinkState | None) -> None:
        broker = source.broker
        if self._spools != bool(broker.config.spooled):
            self._spools = not self._spools
            self._samples.clear()  # the other count begins
        statistics = broker.statistics
        received = (
            broker.spool.next if self._spools else sum(statistics.received) - statistics.repeated
        )
        landed = uplink.totals.messages if uplink else None
        self._samples.append(Sample(received, broker.spool.count, landed, is_down(uplink)))

    def per_day(self) -> float | None:
        """Return the number of spool rows that arrive in a day, estimated from the last samples.
        None if there are fewer than two samples, or no uplink.
        """
        if len(self._samples) < 2 or not self._spools:
            return None
        received = self._samples[-1].received - self._samples[0].received
        return received * DAY_S / (SAMPLE_S * (len(self._samples) - 1))

    def public(self) -> dict[str, list[int]]:
        """Return series for small plots, all of one length: an item for each pair of consecutive
        samples. came, landed: messages between the two samples. waiting: rows that wait at the
        later sample. down: whether the uplink was down then.
        """
        samples = list(self._samples)
        pairs = list(pairwise(samples))
        return {
            "came": [later.received - before.received for before, later in pairs],
            "waiting": [later.waiting for _, later in pairs],
            "landed": [_growth(before.landed, later.landed) for before, later in pairs],
            "down": [int(later.down) for _, later in pairs],
        }


def _growth(before: int | None, later: int | None) -> int:
    """Return by how much a total has grown; 0 if one of the two is unknown."""
    return 0 if before is None or later is None else max(0, later - before)


def is_down(uplink: UplinkState | None) -> bool:
    return uplink is not None and (uplink.outage or not uplink.running)


def overview(
    source: Source, uplink: UplinkState | None, history: History, boards: tuple[int, int]
) -> dict[str, Any]:
    """Return the page's first view. uplink: None without an uplink, or if its state cannot be read.
    boards: numbers of connected boards and of known boards.
    """
    broker = source.broker
    spool, utc = broker.spool, broker.utc
    found = problems_and_remedies(source, uplink)
    age = source.spool_age_s
    return {
        "gateway": broker.config.gateway.name,
        "version": __version__,
        "problems": found,
        "boards": {"connected": boards[0], "known": boards[1]},
        "spool": {
            "used": bool(broker.config.spooled),
            "waiting": spool.count,
            "bytes": spool.size,
            "limit": spool.limit,
            "since": None
            if not spool.count or age is None or utc is None
            else utc - int(age * 1e6),
            "from": None if not spool.count or age is None else round(broker.now - age) * 1_000_000,
        },
        "uplink": _uplink(source, uplink),
        "room_days": _room_days(source, history),
        "radios": len(broker.config.lora),
        "members": len(broker.config.site.members) if broker.config.site else 0,
        "clock": utc is not None,
        "started": None if utc is None else utc - broker.monotonic,
        "booted": int(broker.started * 1e6),
        "history": history.public(),
        "sample_s": SAMPLE_S,
        "notify": source.ways,
        "bridges": [_bridge(item) for item in source.bridges()],
    }


def _bridge(item: BridgeStatus) -> dict[str, Any]:
    shown = ("name", "waiting", "oldest_s", "differ", "retained_here", "retained_there", "aside")
    row = {name: getattr(item, name) for name in shown}
    age = None if item.oldest_s is None else round(item.oldest_s)
    return row | {"oldest_s": age, "error": item.last_error, "bad": bool(bridge_problems(item))}


def problems_and_remedies(source: Source, uplink: UplinkState | None) -> list[dict[str, str]]:
    """Return all problems that need a person, each with `part`, `what` and `todo`."""
    return [
        {"part": item.part, "what": item.what, "todo": item.todo or _TODO[item.part]}
        for item in all_problems(source, uplink)
    ]


def all_problems(source: Source, uplink: UplinkState | None) -> list[Problem]:
    """Return all problems that need a person, including the uplink's and the bridges' problems."""
    beyond = [
        Problem(part, text, about=about) for part, about, text in _beyond_health(source, uplink)
    ]
    return [*problems(source), *beyond]


def _beyond_health(source: Source, uplink: UplinkState | None) -> list[tuple[str, str, str]]:
    """Return the problems that the function `problems` of `health.py` does not report: problems of
    the uplink and of bridges, a spool that no uplink lands, and an unsynchronised clock. Each tuple
    is one problem: part, subject, text.
    """
    broker = source.broker
    found: list[tuple[str, str, str]] = []
    if broker.config.uplink is not None and uplink is not None:
        if not uplink.running:
            found.append(("process", "", "the uplink does not run: no batch lands"))
        elif uplink.outage:
            found.append(("uplink", "outage", f"no batch lands: {uplink.error}"))
        elif (age := source.spool_age_s) is not None and age > LATE_S:
            found.append(("late", "", f"the oldest message has waited for {age / 3600:.0f} h"))
    if not broker.config.spooled and broker.spool.count:
        found.append(
            (
                "stranded",
                "spool",
                f"{wait(broker.spool.count)} in the spool, and no uplink lands them",
            )
        )
    for item in source.bridges():
        found += [
            (part, "" if part == LACKING else item.name, f"bridge {item.name}: {text}")
            for part, text in bridge_problems(item)
        ]
    if broker.utc is None and source.doubt() is None:
        waits = ": batches wait until it is" if broker.config.uplink is not None else ""
        found.append(("clock", "unknown", f"the clock is not synchronised{waits}"))
    return found


def _uplink(source: Source, uplink: UplinkState | None) -> dict[str, Any] | None:
    if source.broker.config.uplink is None or uplink is None:
        return None
    return {
        "running": uplink.running,
        "outage": uplink.outage,
        "cut": uplink.cut,
        "landed": uplink.landed,
        "at": uplink.landed_at,
        "messages": uplink.totals.messages,
        "readings": uplink.totals.messages,  # its name until 0.2.0
        "batches": uplink.totals.batches,
    }


def _room_days(source: Source, history: History) -> float | None:
    """Return the days until spool or disk is full if no further batch lands; None without new
    rows.
    """
    spool, per_day = source.broker.spool, history.per_day()
    if not per_day:
        return None
    size = spool.size / spool.count if spool.count else ROW_OVERHEAD + _PAYLOAD
    room = min(spool.limit - spool.size, source.broker.disk_room)
    return round(max(0, room) / (per_day * size), 1)
