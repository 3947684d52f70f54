"""Judges which boards should send now, and which boards are a problem.

In: the names in the device registry, each publication of a board, and each second the gateway's
view of the boards. Out: one `BoardState` for each board of the registry. Page, `gateway status`,
doctor, metrics, the mirror, Home Assistant and notifications show that state and judge nothing
themselves. Facts that must outlive a restart are in `DATA/expected.json`.

All times are seconds on the broker's time axis, which measures ages even while the clock is not
synchronised.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from gateway.boards.intervals import Gaps, of_command, words
from gateway.links.greeter import Refusal
from gateway.system.jobs import SavedFile

log = logging.getLogger(__name__)

FILE = "expected.json"
SAVE_S = 600.0
"""Seconds between two writes of facts that change with each reading. A change of a board's state is
written at once.
"""
LEAST_S = 30.0
"""Shortest silence of a board, and shortest absence of its port, that can be a problem, in seconds:
replugging or flashing a board takes that long. If a person has set the interval, a shorter silence
can be a problem, too.
"""
UNKNOWN_S = 60.0
"""Assumed interval, in seconds, of a board that is not connected and whose interval is unknown."""
UNKNOWN_CONNECTED_S = 3600.0
"""Assumed interval, in seconds, of a connected board whose interval is unknown. Such a board may
measure rarely.
"""
INTERVALS = 3
"""Number of intervals without a reading after which a board is a problem."""
NEVER = 0.0
"""Interval of a board that sends on events only. Its silence is not a problem."""

Cause = Literal["silent", "unplugged", "refused"]
Value = dict[str, Any]
Word = Literal["fine", "new", "paused", "silent", "unplugged", "refused", "elsewhere"]
PROBLEMS: tuple[Cause, ...] = ("silent", "unplugged", "refused")
WORDS: tuple[Word, ...] = ("fine", "new", "paused", *PROBLEMS)
"""The states of boards that this gateway judges. (`elsewhere` means that another gateway of the
site judges the board.)
"""

_REFUSED: dict[Refusal | None, tuple[str, str]] = {
    Refusal.WRONG_KEY: (
        "a key other than the registry's",
        "If this is the right board, give it a new key by cable: sudo onceway device rekey {}",
    ),
    Refusal.UNKNOWN_KEY: (
        "a key, although the registry has none for the board",
        "Give it a new key by cable: sudo onceway device rekey {} --board KIND",
    ),
    Refusal.NO_PROOF: (
        "no key, as boards with older firmware do",
        "Write its firmware by cable: sudo onceway device flash {}",
    ),
}
"""For each reason of a refusal: a phrase that says what the board shows instead of the right key,
and the remedy.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """The gateway's current view of one board."""

    connected: bool = False
    port: str | None = None
    """The serial port of the board's session, if any."""
    without_port: bool = False
    """Whether the board is connected by radio, or in another way without a serial port."""
    port_open: bool = True
    """Whether the serial port of the board's last session is open."""
    lent: bool = False
    """Whether a command has the use of the board's port, for example to flash the board."""
    refused: str | None = None
    """The port at which a board with this name is refused; None if there is none."""
    refusal: Refusal | None = None
    """The reason why the board is refused. If `refused` is set, None counts as WRONG_KEY."""


@dataclass(slots=True)
class Memory:
    """The facts about one board that are kept over restarts. Times are seconds on the time axis."""

    since: float
    """Time at which the board was first expected."""
    heard: float | None = None
    """Time of the last reading; None before the first one."""
    met: float | None = None
    """Time at which the board was last connected; None if it never was."""
    port: str | None = None
    """The serial port of the board's last session."""
    gaps: Gaps = field(default_factory=Gaps)
    wanted: float | None = None
    """The interval set by a person, in seconds. NEVER: no reading is due. None: no person has set
    one.
    """
    silent: float = 0.0
    """Seconds of silence before this run: how long earlier runs of the gateway, after the board's
    last reading, heard nothing from the board.
    """
    paused: float | None = None
    """End of a pause, in the seconds of `clock`. During the pause, the board is not a problem."""
    problem: str = ""
    """The problem found by the last check, one of PROBLEMS; empty if none."""
    value: Value | None = None
    """The board's last reading: `name`, `value` and `unit`."""

    @property
    def interval(self) -> float | None:
        """Return the seconds between two readings; NEVER if no reading is due, None if unknown."""
        return self.gaps.interval if self.wanted is None else self.wanted

    @property
    def is_uncertain(self) -> bool:
        """Whether the interval comes only from a command that the board has not confirmed, and no
        gaps show the interval.
        """
        return self.wanted is None and not self.gaps.confirmed and self.gaps.learnt is None


@dataclass(frozen=True, slots=True)
class BoardState:
    """The state of one board, as judged. Times are seconds on the time axis."""

    word: Word
    interval: float | None
    """Seconds between two readings; NEVER if no reading is due, None if unknown."""
    heard: float | None
    """Time of the last reading; None before the first one."""
    sentence: str = ""
    """The problem as a sentence without a full stop, unchanged while the problem lasts."""
    todo: str = ""
    """Advice for a person on how to solve the problem."""

    @property
    def is_problem(self) -> bool:
        return self.word in PROBLEMS


def judge(
    name: str, known: Memory, seen: Seen, now: float, quiet_from: float, gone_from: float | None
) -> BoardState:
    """Return the state of a board. No other code decides about the state.

    now: seconds on the time axis. quiet_from: time before which silence does not count, because the
    gateway could not hear the board. Silence in earlier runs counts in addition (`Memory.silent`).
    But after each start of the gateway, a board gets one more interval to send, or an hour if its
    interval is longer. gone_from: when the board's port was first found missing; None while the
    port exists.
    """

    def state(word: Word, text: str = "", todo: str = "") -> BoardState:
        return BoardState(word, known.interval, known.heard, text and f"{name}: {text}", todo)

    if known.paused is not None and now < known.paused:
        return state("paused")
    if seen.refused is not None and not seen.connected:
        shows, todo = _REFUSED.get(seen.refusal, _REFUSED[Refusal.WRONG_KEY])
        return state(
            "refused",
            f"a board with this name at {seen.refused} shows {shows}, and is refused",
            f"{todo.format(name)} --port {seen.refused}",
        )
    if seen.lent:
        return state("fine")
    if gone_from is not None and not seen.connected:
        away = max(LEAST_S, known.interval or UNKNOWN_S)
        if known.problem == "unplugged" or now - gone_from >= away:
            return state(
                "unplugged",
                f"its port {known.port} is gone",
                f"Plug it in. If it is away on purpose: sudo onceway device pause {name} 3d",
            )
    return _by_silence(name, known, seen, now, quiet_from, state)


def _by_silence(
    name: str,
    known: Memory,
    seen: Seen,
    now: float,
    quiet_from: float,
    state: Callable[..., BoardState],
) -> BoardState:
    """Return the state of a board whose port is not missing, by the time since its last reading.
    state: makes the result from a word, a sentence and a remedy.
    """
    interval = known.interval
    unknown = UNKNOWN_CONNECTED_S if seen.connected else UNKNOWN_S
    waits = known.problem == "silent" and known.wanted is None and not known.gaps.confirmed
    if waits and known.gaps.commanded is not None:
        interval = known.gaps.learnt  # a command to a silent board does not end a problem
    if interval == NEVER:
        return state("fine")
    last = known.since if known.heard is None else known.heard
    if interval is None or known.is_uncertain:
        interval = max(unknown, interval or unknown)
        last = last if seen.connected else max(last, known.met or last)
    limit = INTERVALS * interval
    if known.wanted is None:
        limit = max(limit, LEAST_S)
    if known.problem != "silent":
        after_start = min(interval, UNKNOWN_CONNECTED_S)
        last = max(last, quiet_from - min(known.silent, limit - after_start))
    if now - last < limit:
        return state("fine" if known.heard is not None else "new")
    if known.wanted is None and not known.gaps.confirmed:
        # as in the next check, so that the sentence stays the same
        interval = known.gaps.learnt or unknown
        limit = max(INTERVALS * interval, LEAST_S)
    if known.heard is None:
        text = f"this gateway has received no reading for {words(limit)}"
    else:
        text = (
            f"no reading arrived for more than {words(limit)}; one every {words(interval)} is due"
        )
    return state(
        "silent",
        text,
        "Look at its power, cable and sensor. If it measures less often: sudo onceway device expect"
        f" {name} 1h",
    )


class Expected:
    """The expected boards, and their states. folder: the data directory. clock: returns seconds on
    the time axis.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.saved = SavedFile(folder / FILE, "the state of the boards")
        self._known = _read(folder / FILE)
        self._started: float | None = None
        self._quiet: dict[str, float] = {}
        """Earliest time from which a board's silence counts, by board: the last time at which a
        command had the use of the board's port, or at which the board may have been at another
        gateway.
        """
        self._missing_since: dict[str, float] = {}
        """Time at which a board's port was first found missing, by board."""
        self._new = False
        self._saved = -math.inf
        self.clock = clock
        self.states: dict[str, BoardState] = {}
        """States by name, from the last check."""
        self.elsewhere: Collection[str] = ()
        """Boards whose session another gateway of the site may have, from the last check."""
        self._seen: Mapping[str, Seen] = {}

    @property
    def problems(self) -> list[tuple[str, BoardState]]:
        """Return name and state of the boards that are a problem, in the order of the last
        check.
        """
        return [(name, state) for name, state in self.states.items() if state.is_problem]

    @property
    def refused_duplicates(self) -> list[tuple[str, str]]:
        """Return the refused boards that use the name of a connected board: for each, this name,
        and the port at which the board is refused.
        """
        return [
            (name, seen.refused)
            for name, state in self.states.items()
            if state.word != "paused" and (seen := self._seen.get(name)) is not None
            if seen.connected and seen.refused is not None
        ]

    def state_of(self, name: str) -> BoardState:
        """Return the state of a board. If another gateway of the site may have the board's session,
        this gateway does not judge the board. The state is then `elsewhere`, or `paused` while a
        person has paused the board.
        """
        if (state := self.states.get(name)) is not None:
            return state
        known = self._memory(name)
        word: Word = "paused" if self.paused_for(name) else "elsewhere"
        return BoardState(word, known.interval, known.heard)

    def is_problem(self, name: str) -> bool:
        state = self.states.get(name)
        return state is not None and state.is_problem

    def was_problem(self, name: str) -> bool:
        """Whether a board had a problem at the last check, which may have been before a restart."""
        known = self._known.get(name)
        return known is not None and bool(known.problem)

    def heard_ago(self, name: str) -> float | None:
        """Return the seconds since a board's last reading; None before its first one."""
        known = self._known.get(name)
        if known is None or known.heard is None:
            return None
        return max(0.0, self.clock() - known.heard)

    def hear(self, name: str, measured: float | None = None, value: Value | None = None) -> None:
        """Record a reading of a registered board, even of one that was registered after the last
        check. measured: when the board took the reading, in seconds of any origin; None if the
        board does not say. value: `name`, `value` and `unit`; None if the reading cannot be
        decoded.
        """
        known, now = self._memory(name), self.clock()
        is_first = known.heard is None
        known.gaps.take(measured, now)
        known.heard, known.value, known.silent = now, value or known.value, 0.0
        if is_first:
            self._set(name)

    def tell(self, name: str, interval: float, *, confirmed: bool = True) -> None:
        """Record a board's interval, in seconds. NEVER: the board has stopped measuring. confirmed:
        whether the board itself has reported the interval; False if it was only commanded.
        """
        if (known := self._known.get(name)) is not None:
            known.gaps.tell(interval, confirmed=confirmed)

    def command(self, name: str, text: str) -> None:
        """Record a command that was sent to a board. Only commands that set an interval count."""
        interval = of_command(text)
        if interval is not None:
            self.tell(name, interval, confirmed=False)
            self._new = True

    def want(self, name: str, interval: float | None) -> None:
        """Set the interval, in seconds, that a person expects of a board. None: learn the interval
        from the board's readings.
        """
        self._memory(name).wanted = interval
        self._set(name)

    def pause(self, name: str, seconds: float) -> None:
        """Pause a board for some seconds. A paused board is not a problem. 0 ends a pause."""
        self.pause_until(name, self.clock() + seconds if seconds else None)

    def pause_until(self, name: str, end: float | None) -> None:
        """Pause a board until a time on the time axis. None ends a pause."""
        self._memory(name).paused = end
        self._set(name)

    def _memory(self, name: str) -> Memory:
        """Return the facts about a board. If there are none yet, create them."""
        if name not in self._known:
            self._known[name], self._new = Memory(self.clock()), True
        return self._known[name]

    def _set(self, name: str) -> None:
        """Note that facts about a board have changed and must be saved, and judge the board again
        at once.
        """
        self._new = True
        if name in self.states:
            self.states[name] = self._look_at(name, self._seen.get(name), self.clock())

    def value_of(self, name: str) -> Value | None:
        """Return a board's last reading: `name`, `value` and `unit`; None before the first one."""
        known = self._known.get(name)
        return known.value if known is not None else None

    def wanted(self, name: str) -> float | None:
        """Return the interval that a person has set for a board, in seconds; None if no person has
        set one.
        """
        known = self._known.get(name)
        return known.wanted if known is not None else None

    def paused_for(self, name: str) -> float:
        """Return the seconds until a board's pause ends; 0 if it is not paused."""
        known = self._known.get(name)
        return max(0.0, (known.paused or 0.0) - self.clock()) if known is not None else 0.0

    def look(
        self, names: Iterable[str], seen: Mapping[str, Seen], elsewhere: Collection[str] = ()
    ) -> list[str]:
        """Judge the boards `names` of the registry. Return the names of boards that are no longer
        in the registry; their facts were dropped. seen: the gateway's current view of boards.
        elsewhere: boards of the registry whose session another gateway of the site may have. This
        gateway does not judge them.
        """
        now = self.clock()
        if self._started is None:
            self._started = now
            _clamp(self._known.values(), now)
        wanted, self._seen, self.elsewhere = dict.fromkeys(names), seen, elsewhere
        forgotten = []
        for name in self._known.keys() - wanted:
            if name in elsewhere:
                self._leave(name, now)
            else:
                self._forget(name)
                forgotten.append(name)
        self.states = {name: self._look_at(name, seen.get(name), now) for name in wanted}
        return forgotten

    def port_of(self, name: str) -> str | None:
        """Return the serial port of a board's last session, or None."""
        known = self._known.get(name)
        return known.port if known is not None else None

    def news(self, *, at_end: bool = False) -> str | None:
        """Return the text for `write` if a write is due, else None. at_end: whether the gateway
        stops, so that a write is due in any case.
        """
        now = self.clock()
        if not (self._new or at_end or now - self._saved >= SAVE_S):
            return self.saved.unwritten
        self._new, self._saved = False, now
        rows = {
            name: asdict(known)
            | {"gaps": known.gaps.kept(), "silent": self._silence(name, known, now)}
            for name, known in self._known.items()
        }
        return json.dumps(rows)

    def write(self, text: str) -> None:
        """Write the text of `news` to `expected.json`. Any thread may call this method."""
        self.saved.write(text)

    def _look_at(self, name: str, seen: Seen | None, now: float) -> BoardState:
        known = self._memory(name)
        seen = seen or Seen(port_open=False)
        port = None if seen.without_port else seen.port or known.port
        if port != known.port:
            known.port, self._new = port, True
        if seen.connected:
            known.met = now
        if seen.lent:
            self._quiet[name], known.silent = now, 0.0
        self._note_port(name, known, seen, now)
        quiet = self._quiet_from(name, now)
        state = judge(name, known, seen, now, quiet, self._missing_since.get(name))
        problem = state.word if state.is_problem else ""
        if problem != known.problem:
            known.problem, self._new = problem, True
            self._log(name, state)
        return state

    def _quiet_from(self, name: str, now: float) -> float:
        """Return the time up to which a board's silence does not count in this run of the
        gateway.
        """
        return max(self._quiet.get(name, 0.0), now if self._started is None else self._started)

    def _silence(self, name: str, known: Memory, now: float) -> float:
        """Return for how many seconds the board has been silent, in this run and earlier runs
        together.
        """
        last = known.since if known.heard is None else known.heard
        return known.silent + max(0.0, now - max(last, self._quiet_from(name, now)))

    def _note_port(self, name: str, known: Memory, seen: Seen, now: float) -> None:
        """Record since when the port of a board has been missing."""
        if known.port is None or seen.connected or seen.lent or seen.port_open:
            self._missing_since.pop(name, None)
        else:
            self._missing_since.setdefault(name, now)

    def _leave(self, name: str, now: float) -> None:
        """Note that a board may be at another gateway. Forget its problem, its port and its
        silence. Keep its interval, its last reading and the settings of a person.
        """
        known = self._known[name]
        if known.problem or known.port is not None:
            known.problem, known.port, self._new = "", None, True
        self._quiet[name], known.silent = now, 0.0
        self._missing_since.pop(name, None)

    def _forget(self, name: str) -> None:
        """Drop a board that is no longer in the registry."""
        for table in (self._known, self._quiet, self._missing_since):
            table.pop(name, None)
        self._new = True

    @staticmethod
    def _log(name: str, state: BoardState) -> None:
        if state.is_problem:
            log.warning("%s. %s", state.sentence, state.todo)
        else:
            log.warning("%s: the problem of the board is over", name)


def _clamp(known: Iterable[Memory], now: float) -> None:
    """Replace times in the future by `now`. There are such times after the store was replaced,
    because a new store begins a new time axis.
    """
    for one in known:
        one.since = min(one.since, now)
        one.heard = None if one.heard is None else min(one.heard, now)
        one.met = None if one.met is None else min(one.met, now)


def _read(file: Path) -> dict[str, Memory]:
    """Return the saved facts of an earlier run, by board; empty if they cannot be read."""
    try:
        found = json.loads(file.read_text())
        return {str(name): _memory(row) for name, row in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.error("%s: cannot be read (%s): intervals are learnt again", file, error)
        return {}


_NUMBERS = ("since", "heard", "met", "wanted", "paused", "silent")


def _memory(row: dict[str, Any]) -> Memory:
    names = {item.name for item in fields(Memory)}
    known = {key: value for key, value in row.items() if key in names and key != "gaps"}
    for key in _NUMBERS:
        if known.get(key) is not None:
            known[key] = float(known[key])
    return Memory(**known, gaps=Gaps.of(row.get("gaps") or {}))
