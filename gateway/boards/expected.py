"""Which boards ought to speak, and which of them are a problem.

In: the names in the device registry, each publication of a board, and each second what the gateway
sees of the boards. Out: one `BoardState` for each board of the registry. Page, `gateway status`,
doctor, metrics, the mirror, Home Assistant and notifications show that state and judge nothing
themselves. What must outlive a restart is in `DATA/expected.json`.

All times are seconds on the broker's time axis, which knows how long ago something was even while
the clock is not synchronised.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from gateway.boards.intervals import Gaps, of_command, words

log = logging.getLogger(__name__)

FILE = "expected.json"
SAVE_S = 600.0
"""Seconds between two writes of what changes with each reading. A change of a state is written at
once.
"""
LEAST_S = 30.0
"""Seconds for which nothing is a problem: a board that is replugged or flashed needs them."""
UNKNOWN_S = 60.0
"""The interval that counts for a board of which none is known and which is not connected."""
UNKNOWN_CONNECTED_S = 3600.0
"""The same for a board that is connected: it may measure seldom."""
INTERVALS = 3
"""Intervals without a reading that make a problem."""
NEVER = 0.0
"""The interval of a board that speaks on events: its silence is no problem."""

Cause = Literal["silent", "unplugged", "refused"]
Value = dict[str, Any]
Word = Literal["fine", "new", "paused", "silent", "unplugged", "refused"]
PROBLEMS: tuple[Cause, ...] = ("silent", "unplugged", "refused")
WORDS: tuple[Word, ...] = ("fine", "new", "paused", *PROBLEMS)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the gateway sees of one board now."""

    connected: bool = False
    port: str | None = None
    """The serial port of its session, if it has one there."""
    port_open: bool = True
    """Whether the serial port of its last session is open."""
    lent: bool = False
    """Whether a command has that port, for example to write to the board."""
    refused: str | None = None
    """The port on which a board of this name is refused."""


@dataclass(slots=True)
class Memory:
    """What is known of one board, and kept over restarts."""

    since: float
    """When the board was first expected."""
    heard: float | None = None
    """When its last reading was taken."""
    met: float | None = None
    """When the board was last connected."""
    port: str | None = None
    """The serial port of its last session."""
    gaps: Gaps = field(default_factory=Gaps)
    wanted: float | None = None
    """The interval that a person has set; NEVER: none."""
    paused: float | None = None
    """Until when no problem counts."""
    problem: str = ""
    """The problem of the last look; empty without one."""
    value: Value | None = None
    """What its last reading says: `name`, `value` and `unit`."""

    @property
    def interval(self) -> float | None:
        """Seconds between two readings; NEVER if there need not be any, None if not known."""
        return self.gaps.interval if self.wanted is None else self.wanted

    @property
    def is_uncertain(self) -> bool:
        """Whether that interval is only on its way to a board of which none is known."""
        return self.wanted is None and not self.gaps.confirmed and self.gaps.learnt is None


@dataclass(frozen=True, slots=True)
class BoardState:
    """How one expected board is."""

    word: Word
    interval: float | None
    """Seconds between two readings; NEVER if there need not be any, None if not known."""
    heard: float | None
    """When its last reading was taken; None before the first one."""
    what: str = ""
    """The problem as a sentence without a full stop. It stays the same while the problem lasts."""
    todo: str = ""
    """What a person can do about the problem."""

    @property
    def is_problem(self) -> bool:
        return self.word in PROBLEMS


def judge(
    name: str, known: Memory, seen: Seen, now: float, quiet_from: float, gone_from: float | None
) -> BoardState:
    """Return how a board is: this function alone decides it.

    quiet_from: silence before this time does not count, since the gateway could not hear the board.
    gone_from: when its port was first seen to be gone; None while the port is there.
    """

    def state(word: Word, what: str = "", todo: str = "") -> BoardState:
        return BoardState(word, known.interval, known.heard, what and f"{name}: {what}", todo)

    if known.paused is not None and now < known.paused:
        return state("paused")
    if seen.refused is not None and not seen.connected:
        return state(
            "refused",
            f"a board of this name at {seen.refused} shows another key than the registry's, and is"
            " refused",
            f"If it is this board, give it a new key by cable: sudo onceway device rekey {name}",
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
    """Judge a board whose port is there by the time since its last reading."""
    interval = known.interval
    unknown = UNKNOWN_CONNECTED_S if seen.connected else UNKNOWN_S
    waits = known.problem == "silent" and known.wanted is None and not known.gaps.confirmed
    if waits and known.gaps.told is not None:
        interval = known.gaps.learnt  # a command to a board that is silent ends no problem
    if interval == NEVER:
        return state("fine")
    last = known.since if known.heard is None else known.heard
    if interval is None or known.is_uncertain:
        interval = max(unknown, interval or unknown)
        last = last if seen.connected else max(last, known.met or last)
    if known.problem != "silent":
        last = max(last, quiet_from)
    limit = INTERVALS * interval
    if known.wanted is None:
        limit = max(limit, LEAST_S)
    if now - last < limit:
        return state("fine" if known.heard is not None else "new")
    if known.wanted is None and not known.gaps.confirmed:
        interval = known.gaps.learnt or unknown  # as of the next look, so that the words stay
        limit = max(INTERVALS * interval, LEAST_S)
    if known.heard is None:
        what = f"no reading ever came, and {words(limit)} are over"
    else:
        what = f"no reading came for more than {words(limit)}; one each {words(interval)} is due"
    return state(
        "silent",
        what,
        "Look at its power, cable and sensor. If it measures less often: sudo onceway device expect"
        f" {name} 1h",
    )


class Expected:
    """All boards of the registry. folder: the data directory. clock: the time axis, in seconds."""

    def __init__(self, folder: Path, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._file = folder / FILE
        self._known = _read(self._file)
        self._started: float | None = None
        self._quiet: dict[str, float] = {}
        """By board: when a command gave its port back."""
        self._gone: dict[str, float] = {}
        """By board: when its port was first seen to be gone."""
        self._new = False
        self._saved = -math.inf
        self.clock = clock
        self.states: dict[str, BoardState] = {}
        """By name, as of the last look."""
        self._seen: Mapping[str, Seen] = {}

    @property
    def problems(self) -> list[tuple[str, BoardState]]:
        """Boards that are a problem, in the order of the registry."""
        return [(name, state) for name, state in self.states.items() if state.is_problem]

    def is_problem(self, name: str) -> bool:
        state = self.states.get(name)
        return state is not None and state.is_problem

    def was_problem(self, name: str) -> bool:
        """Whether a board was a problem at the last look, also at the one before a restart."""
        known = self._known.get(name)
        return known is not None and bool(known.problem)

    def heard_ago(self, name: str) -> float | None:
        """Seconds since a board's last reading; None before its first one."""
        state = self.states.get(name)
        if state is None or state.heard is None:
            return None
        return max(0.0, self.clock() - state.heard)

    def hear(self, name: str, measured: float | None = None, value: Value | None = None) -> None:
        """Take note of a reading. measured: when the board took it, in seconds of any origin; None
        if the board does not say. value: what it says, if that can be read.
        """
        known = self._known.get(name)
        if known is None:
            return
        now = self.clock()
        known.gaps.take(measured, now)
        known.heard, known.value = now, value or known.value

    def tell(self, name: str, interval: float, *, confirmed: bool = True) -> None:
        """A board says its interval. NEVER: it measures no more. confirmed: false if it was only
        told so.
        """
        if (known := self._known.get(name)) is not None:
            known.gaps.tell(interval, confirmed=confirmed)

    def command(self, name: str, text: str) -> None:
        """A command was sent to a board: it may be a new interval."""
        interval = of_command(text)
        if interval is not None:
            self.tell(name, interval, confirmed=False)
            self._new = True

    def want(self, name: str, interval: float | None) -> None:
        """Set the interval that a person gives. None: go by what the board does."""
        self._known[name].wanted = interval
        self._set(name)

    def pause(self, name: str, seconds: float) -> None:
        """Let a board count as no problem for so long; 0 ends that."""
        self._known[name].paused = self.clock() + seconds if seconds else None
        self._set(name)

    def _set(self, name: str) -> None:
        """A person has set something of a board: judge it again at once."""
        self._new = True
        if name in self.states:
            self.states[name] = self._look_at(name, self._seen.get(name), self.clock())

    def value_of(self, name: str) -> Value | None:
        """What the last reading of a board says: `name`, `value` and `unit`."""
        known = self._known.get(name)
        return known.value if known is not None else None

    def wanted(self, name: str) -> float | None:
        """The interval that a person has set; None where none is set."""
        known = self._known.get(name)
        return known.wanted if known is not None else None

    def paused_for(self, name: str) -> float:
        """Seconds for which a board is still paused."""
        known = self._known.get(name)
        return max(0.0, (known.paused or 0.0) - self.clock()) if known is not None else 0.0

    def look(
        self, names: Iterable[str], seen: Mapping[str, Seen], elsewhere: Collection[str] = ()
    ) -> None:
        """Judge these boards of the registry. seen: boards of which something is seen. elsewhere:
        boards of the registry that another gateway of the site may hold; they are not judged here.
        """
        now = self.clock()
        if self._started is None:
            self._started = now
            _clamp(self._known.values(), now)
        wanted, self._seen = dict.fromkeys(names), seen
        for name in self._known.keys() - wanted:
            if name in elsewhere:
                self._leave(name, now)
            else:
                self._forget(name)
        self.states = {name: self._look_at(name, seen.get(name), now) for name in wanted}

    def port_of(self, name: str) -> str | None:
        """The serial port of a board's last session."""
        known = self._known.get(name)
        return known.port if known is not None else None

    def news(self, *, at_end: bool = False) -> str | None:
        """Return what `write` shall write, if it is time for that."""
        now = self.clock()
        if not (self._new or at_end or now - self._saved >= SAVE_S):
            return None
        self._new, self._saved = False, now
        rows = {
            name: {**asdict(known), "gaps": known.gaps.kept()}
            for name, known in self._known.items()
        }
        return json.dumps(rows)

    def write(self, text: str) -> None:
        """Write the file; on any thread."""
        new = self._file.with_suffix(".new")
        try:
            new.write_text(text)
            os.replace(new, self._file)
        except OSError as error:
            log.error("%s: cannot write which boards speak (%s)", self._file, error.strerror)

    def _look_at(self, name: str, seen: Seen | None, now: float) -> BoardState:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = Memory(now)
            self._new = True
        seen = seen or Seen(port_open=False)
        if seen.connected:
            known.met = now
            if seen.port is not None and seen.port != known.port:
                known.port, self._new = seen.port, True
        if seen.lent:
            self._quiet[name] = now
        self._note_port(name, known, seen, now)
        assert self._started is not None  # noqa: S101 - set by the first look
        quiet = max(self._quiet.get(name, 0.0), self._started)
        state = judge(name, known, seen, now, quiet, self._gone.get(name))
        problem = state.word if state.is_problem else ""
        if problem != known.problem:
            known.problem, self._new = problem, True
            self._log(name, state)
        return state

    def _note_port(self, name: str, known: Memory, seen: Seen, now: float) -> None:
        """Note since when the port of a board has been gone."""
        if known.port is None or seen.connected or seen.lent or seen.port_open:
            self._gone.pop(name, None)
        else:
            self._gone.setdefault(name, now)

    def _leave(self, name: str, now: float) -> None:
        """Keep of a board that may be at another gateway its interval and what a person has set."""
        known = self._known[name]
        if known.problem or known.port is not None:
            known.problem, known.port, self._new = "", None, True
        self._quiet[name] = now
        self._gone.pop(name, None)

    def _forget(self, name: str) -> None:
        """Drop a board that is in the registry no more."""
        for table in (self._known, self._quiet, self._gone):
            table.pop(name, None)
        self._new = True

    @staticmethod
    def _log(name: str, state: BoardState) -> None:
        if state.is_problem:
            log.warning("%s. %s", state.what, state.todo)
        else:
            log.warning("%s: the board is no problem any more", name)


def _clamp(known: Iterable[Memory], now: float) -> None:
    """Mend times that lie ahead: the store, and with it the time axis, is another one."""
    for one in known:
        one.since = min(one.since, now)
        one.heard = None if one.heard is None else min(one.heard, now)
        one.met = None if one.met is None else min(one.met, now)


def _read(file: Path) -> dict[str, Memory]:
    """Return what a gateway has left; nothing where that cannot be read."""
    try:
        found = json.loads(file.read_text())
        return {str(name): _memory(row) for name, row in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.error("%s: cannot be read (%s): intervals are learnt again", file, error)
        return {}


_NUMBERS = ("since", "heard", "met", "wanted", "paused")


def _memory(row: dict[str, Any]) -> Memory:
    names = {item.name for item in fields(Memory)}
    known = {key: value for key, value in row.items() if key in names and key != "gaps"}
    for key in _NUMBERS:
        if known.get(key) is not None:
            known[key] = float(known[key])
    return Memory(**known, gaps=Gaps.of(row.get("gaps") or {}))
