"""Checks the times that boards give to readings, and those that the gateway gives to rows.

In: a history, with the relation of the machine's two clocks, the boards' starts, the packets on
their lines, and the shifts of the gateway's clock. Out: the mistake in a time, in words, or None.

A board gets the time from the gateway's WELCOME, in whole seconds, and counts whole seconds by its
own clock from then on. A reading before the first WELCOME after a start gets its time when it is
sent, or no time if the board has started again by then.

Faults excuse wrong times within limits. Near a shift of the gateway's clock, a time may be wrong by
exactly the shift. Near a fault that delays a line, a time may be early by as much as the delay. A
simulated board on a busy machine may fall behind real time. Then its times may be wrong by as much
as its simulator says that it fell behind.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hil.judge.senml import Record
from hil.observe.history import Event, taking

S = 1_000_000_000  # ns
BOARD_HZ = 16_000_000
EARLY_NS = 4 * S
"""Tolerance for times that are too early. The gateway drops the fraction of its second (1 s), and
so does the board (1 s). A WELCOME may be late on a busy machine (2 s)."""
LATE_NS = 2 * S
"""Tolerance for times that are too late. The WELCOME may set the board's clock just before its next
second begins (1 s). The simulator may be behind real time (1 s)."""
RECEIVED_NS = S // 2
"""Tolerance of `received`, which the gateway reads from this machine's clock."""
SETTLES_NS = 3 * S
"""Time after a jump of the clock for which the gateway may still use the old time. The gateway
reads the wall clock once a second; a busy machine delays this."""
BELIEVED_NS = 86_400 * S
"""Largest jump of the wall clock that a running gateway believes (gateway/docs/card.md). After a
larger jump, the gateway's time continues as before."""
JOURNALLED_NS = S // 4
"""`_unknown` accepts a payload without a time if `sampled` is at most this much later than the
board's first PUBLISH after its start. The `sampled` of a status message can be too late: it counts
from the start, when the simulator may have been a quarter of a second behind real time."""
LINE_BYTES_S = 11_520
DRIFT = 200
"""Seconds in which a board's clock may gain or lose one second: a resonator's 0.5 %."""
ROUNDED = 2
"""Factor by which the error that a board states for its time may exceed the real error, because the
stated error is rounded."""
SOME = 20
"""Smallest number of timestamps that `always_off` judges. In such a set, at least one should not be
late because of a clock or a late WELCOME."""
OFF_EARLY_NS, OFF_LATE_NS = 2 * S, S
"""All times of a board may be too early, or too late, by this much: both clocks drop the fraction
of a second. Late WELCOMEs do not count here, because not every WELCOME is late."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Time span of a fault. by: shift of the clock, or delay of a byte on the line. All in ns."""

    since: int
    until: int
    by: int

    def near(self, low: int, high: int, slack: int) -> bool:
        return self.since - slack <= high and low <= self.until + slack


@dataclass(slots=True)
class _Line:
    """Events of a device's line. Times are in ns of the monotonic clock."""

    starts: list[int] = field(default_factory=list)
    welcomes: list[int] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    late: list[_Span] = field(default_factory=list)
    behind: list[tuple[int, int]] = field(default_factory=list)
    """Pairs: a time, and by how many ns the board's time was then behind the machine's clock."""

    def sort(self) -> None:
        for times in (self.starts, self.welcomes, self.published, self.behind):
            times.sort()

    def life(self, t: int) -> tuple[int, int]:
        """Return the times of the last start until `t` (or 0) and of the next start (or 2^63)."""
        index = bisect_right(self.starts, t)
        begin = self.starts[index - 1] if index else 0
        return begin, self.starts[index] if index < len(self.starts) else 1 << 63

    def met(self, life: tuple[int, int]) -> int | None:
        """Return the time of the board's first PUBLISH after the first WELCOME between two starts
        (`life`), or None. A PUBLISH before this WELCOME was sent before the start."""
        welcomed = bisect_left(self.welcomes, life[0])
        if welcomed == len(self.welcomes):
            return None
        index = bisect_left(self.published, self.welcomes[welcomed])
        within = index < len(self.published) and self.published[index] <= life[1]
        return self.published[index] if within else None

    def lost(self, life: tuple[int, int]) -> int:
        """Return by how many ns the board's clock fell behind between two starts (`life`)."""
        behind = [by for t, by in self.behind if life[0] <= t <= life[1]]
        return max(behind) - min(behind) if behind else 0


class Clocks:
    """Clocks of a run. Call `take` with all events, in any order, then `sort`, then query."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._jumps: list[_Span] = []
        self._lines: dict[str, _Line] = defaultdict(_Line)
        self._holds: dict[str, int] = {}
        self._struck: list[Event] = []
        self.unknown = False
        """Whether the gateway starts without knowing the time of day."""

    def take(self, event: Event) -> None:
        data = event.data
        match event.hop, event.event:
            case "rig", "run":
                self._begin(data["bench"].get("fault", ()))
                self.unknown = starts_without_time_of_day(data["bench"])
            case "rig", "clock":
                self._offsets.append(data["utc"] - event.t)
            case "board", "start":
                line = self._lines[data["device"]]
                line.starts.append(event.t)
                line.behind.append((event.t, _behind(event)))
            case "board", "clock":
                self._lines[data["device"]].behind.append((event.t, _behind(event)))
            case "board", "publication" if "sampled" in data:
                self._lines[data["device"]].behind.append((event.t, _behind(event)))
            case "wire" | "air", "welcome" | "time" if data.get("timed", True):
                self._lines[data["line"]].welcomes.append(event.t)
            case "wire" | "air", "publish" if data.get("direction", "up") == "up":
                self._lines[data["line"]].published.append(event.t)
            case "wire", "struck" if data["action"] in ("delay", "stall", "flood"):
                self._struck.append(event)
            case _, "happened" if "shift" in data:
                until = data.get("until", event.t)
                self._jumps.append(_Span(data["since"], until, _shown(data["shift"])))

    def _begin(self, faults: Any) -> None:
        for fault in faults:
            action = fault["kind"].removeprefix("line-")
            held_s = fault.get("seconds", fault.get("length", 0) / LINE_BYTES_S)
            self._holds[action] = max(int(held_s * S), self._holds.get(action, 0))

    def sort(self) -> None:
        """Prepare for queries. Call this once, after all calls of `take`."""
        for event in self._struck:
            delay = self._holds.get(event.data["action"], 0)
            span = _Span(event.t - delay, event.t + delay, delay)
            self._lines[event.data["line"]].late.append(span)
        for line in self._lines.values():
            line.sort()

    @property
    def steady(self) -> bool:
        """Whether the gateway knew the time from its start on, and no fault changed its clock."""
        return not self._jumps and not self.unknown

    def offset(self) -> int | None:
        """Return the smallest measured difference of UTC and monotonic clock, in ns, or None."""
        return min(self._offsets, default=None)

    def time_fault(self, device: str, time: float | None, sampled: int, arrived: int) -> str | None:
        """Return the mistake in the time that a payload gives its sample, or None. time: UTC
        seconds; None if the payload has no time. sampled: real time of the sample. arrived: when
        the payload was first seen at a hop after the board. `sampled` and `arrived` are in
        monotonic nanoseconds.
        """
        line = self._lines[device]
        life = line.life(sampled)
        if time is None:
            return self._unknown(line, life, sampled, arrived)
        if not self._offsets:
            return "the time of the machine is unknown"
        ns = int(time * S)
        lost = line.lost(life)
        welcomes = [t for t in line.welcomes if life[0] <= t <= min(life[1], arrived)]
        if not welcomes:
            return "it has a time, but no gateway had given the board a time"
        for welcome in welcomes:
            delay = sum(span.by for span in line.late if span.near(welcome, welcome, S))
            # a time that the board lost makes a sample after the WELCOME early, one before it late
            early, late = (lost, 0) if welcome <= sampled else (0, lost)
            for shift in self._shifts(welcome, welcome):
                low = min(self._offsets) + sampled + shift - EARLY_NS - early - delay
                high = max(self._offsets) + sampled + shift + LATE_NS + late
                if low <= ns <= high:
                    return None
        return f"its time is {_utc(ns)}, but it was sampled at {_utc(self._offsets[0] + sampled)}"

    def unsure(self, device: str, record: Record, sampled: int, arrived: int) -> str | None:
        """Check the possible error (`tu`) that a reading states for its time. Return a sentence if
        it is missing, stated without a time, too small, or much too large; else None. The smallest
        possible error has two parts: the fractions of a second that both clocks drop, and the drift
        of the board's clock since the nearest WELCOME. sampled, arrived: as for `time_fault`."""
        if record.time is None:
            mistake = "it states a possible error of its time, but has no time"
            return None if record.error is None else mistake
        if record.error is None:
            return "it does not state the possible error of its time"
        line = self._lines[device]
        life = line.life(sampled)
        welcomes = [t for t in line.welcomes if life[0] <= t <= min(life[1], arrived)]
        earlier = [t for t in welcomes if t <= sampled] or welcomes[:1]
        if not earlier:
            return None  # `time_fault` reports it
        nearest, farthest = (end(abs(sampled - t) for t in earlier) for end in (min, max))
        lost = line.lost(life)
        least = OFF_EARLY_NS + max(0, nearest - lost) // DRIFT
        most = ROUNDED * (EARLY_NS + (farthest + lost) // DRIFT + S)
        if not least <= record.error * S <= most:
            return (
                f"it states a possible error of {record.error} s for its time, but that must be"
                f" {least / S:.1f} to {most / S:.1f} s"
            )
        return None

    def always_off(self, samples: Iterable[tuple[str, float, int]]) -> list[str]:
        """Return a sentence for each board whose times are all too early or all too late; also one
        if this is true of all boards' times together. Single times may be wrong by seconds. Return
        [] if the gateway's clock has jumped: larger errors are allowed then. samples: board, time
        that the board gave in UTC seconds, and real time in monotonic nanoseconds.
        """
        if not self._offsets or self._jumps:
            return []
        first, last = min(self._offsets), max(self._offsets)
        off: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for device, time, sampled in samples:
            line = self._lines[device]
            lost, ns = line.lost(line.life(sampled)), int(time * S) - sampled
            off[device].append((ns - last - lost, ns - first + lost))
        together = [one for of_device in off.values() for one in of_device]
        offsets_of = {"boards tell": together, **{f"{name} tells": of for name, of in off.items()}}
        wrong = [
            f"all times that {subject} are too {by} or more"
            for subject, of in offsets_of.items()
            if (by := _always(of))
        ]
        return wrong[:1] if len(off) == 1 else wrong

    def _unknown(
        self, line: _Line, life: tuple[int, int], sampled: int, arrived: int
    ) -> str | None:
        met = line.met(life)
        if met is not None and met <= sampled - JOURNALLED_NS:
            return "it has no time, although the board had a session before the sample"
        # a payload without a time may be on its way when the gateway learns the time
        late = self.unknown and not any(life[0] <= t < arrived - SETTLES_NS for t in line.welcomes)
        if arrived < life[1] and not late:
            return "it has no time, although it arrived before the board's next start"
        return None

    def received(self, us: int | None, sampled: int, seen: int) -> str | None:
        """Return the mistake in the gateway's time of receipt of a row, or None. us: this time in
        µs UTC; None if the row has none. sampled: earliest possible time. seen: when the rig saw
        the row. `sampled` and `seen` are in monotonic nanoseconds.
        """
        if not self._offsets:
            return "the time of the machine is unknown"
        if us is None:
            return "`received` is missing"
        for shift in self._shifts(sampled, seen):
            low = min(self._offsets) + sampled + shift - RECEIVED_NS
            high = max(self._offsets) + seen + shift + RECEIVED_NS
            if low <= us * 1000 <= high:
                return None
        first, last = (_utc(self._offsets[0] + t) for t in (sampled, seen))
        return f"`received` is {_utc(us * 1000)}, but the receipt was between {first} and {last}"

    def batch_mistake(
        self, landed: int | None, ingested: int | None, sampled: int, seen: int
    ) -> str | None:
        """Return the mistake in the times at which a row's batch landed and was ingested (µs UTC),
        or None if they are right. `landed` must be before `ingested`, and both must lie between the
        row's sample and the moment when the rig saw the row. No fault changes these clocks.
        """
        if not self._offsets:
            return "the time of the machine is unknown"
        if landed is None or ingested is None:
            return "`landed` or `ingested` is missing"
        low = min(self._offsets) + sampled - RECEIVED_NS
        high = max(self._offsets) + seen + RECEIVED_NS
        if low <= landed * 1000 < ingested * 1000 <= high:
            return None
        first, last = (_utc(self._offsets[0] + t) for t in (sampled, seen))
        times = " and ".join(_utc(us * 1000) for us in (landed, ingested))
        return f"`landed` and `ingested` are {times}, but ingested between {first} and {last}"

    def centre_mistake(self, us: int | None, since: int, until: int) -> str | None:
        """Return the mistake in a time of the centre's clock (µs UTC), which no fault changes."""
        low = min(self._offsets, default=0) + since - RECEIVED_NS
        high = max(self._offsets, default=0) + until + RECEIVED_NS
        if us is not None and low <= us * 1000 <= high:
            return None
        shown = "missing" if us is None else _utc(us * 1000)
        return f"it is {shown}, but must be between {_utc(low)} and {_utc(high)}"

    def _shifts(self, low: int, high: int) -> set[int]:
        """Return the shifts, in ns, that the gateway's clock may have between two times. If both
        times are in one jump, at least SETTLES_NS after its beginning: only the shift of this jump.
        Else: 0 and the shifts of all jumps nearby.
        """
        for jump in self._jumps:
            if jump.since + SETTLES_NS <= low and high <= jump.until:
                return {jump.by}
        return {0} | {jump.by for jump in self._jumps if jump.near(low, high, SETTLES_NS)}


def starts_without_time_of_day(bench: Mapping[str, Any]) -> bool:
    """Return whether the gateway starts without knowing the time of day (fault `clock-unknown`)."""
    return any(fault["kind"] == "clock-unknown" for fault in bench.get("fault", ()))


def _always(off: list[tuple[int, int]]) -> str | None:
    """If all times are too early, or all too late, return this word and the smallest amount, else
    None. off: the smallest and largest possible lateness of each time, in ns.
    """
    if len(off) < SOME:
        return None
    early, late = max(high for _, high in off), min(low for low, _ in off)
    if early < -OFF_EARLY_NS:
        return f"early, by {-early / S:.1f} s"
    return f"late, by {late / S:.1f} s" if late > OFF_LATE_NS else None


def _shown(shift: int) -> int:
    """Return by how many ns a clock jump moves the gateway's time: 0 if the gateway ignores it."""
    return shift if abs(shift) <= BELIEVED_NS else 0


def unseen_jumps(events: Iterable[Event]) -> list[str]:
    """Return a sentence for each clock jump that has shifted no row's time of receipt. Jumps above
    BELIEVED_NS, which the gateway ignores, are left out.
    """
    offset: int | None = None
    jumps: dict[str, _Span] = {}
    rows: list[tuple[int, int]] = []
    for event in events:
        with taking(event):
            data = event.data
            match event.hop, event.event:
                case "rig", "clock":
                    offset = data["utc"] - event.t if offset is None else offset
                case "spool" | "batch", "publication" if data.get("received") is not None:
                    rows.append((event.t, data["received"] * 1000))
                case _, "happened" if _shown(data.get("shift", 0)):
                    until = data.get("until", event.t)
                    jumps[data["fault"]] = _Span(data["since"], until, data["shift"])
    return [
        f"{fault} happened, but no row was received at the time to which the clock had jumped"
        for fault, jump in jumps.items()
        if offset is None
        or not any(
            abs(received - offset - t - jump.by) < abs(jump.by) // 2
            for t, received in rows
            if jump.since <= t <= jump.until + SETTLES_NS
        )
    ]


def _behind(event: Event) -> int:
    return int(event.t - event.data["cycle"] * S // BOARD_HZ)


def _utc(ns: int) -> str:
    try:
        return datetime.fromtimestamp(ns / S, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{ns / S:.3f}"
