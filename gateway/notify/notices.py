"""The decision which problems are reported to people, and when.

In: the current problems. Out: messages, each once; and `DATA/notices.json`, so that a restart
repeats no message. A problem is recognised by its identifier. Its words may change while the
problem lasts, such as the reason of an outage.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from gateway.system.amounts import amount
from gateway.system.without_figures import without_figures

log = logging.getLogger(__name__)

FILE = "notices.json"
MOST = 1000
"""Largest number of present problems that are noticed, and of messages that wait for one channel.
"""
SETTLE_S = 30.0
"""For this many seconds after a start, no problem from before the start counts as ended: the first
checks do not see every problem.
"""
RELAPSE_S = 3600.0
"""If a problem returns within these seconds after the report of its end, its next end is reported
later (SLOWER).
"""
SLOWER = 4
"""Factor for a problem that comes and goes: each return within RELAPSE_S multiplies the time for
which the problem must be absent before its end is reported. The time is RELAPSE_S at most.
"""

Event = Literal["begins", "ends", "goes on", "test"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message to people. at: seconds since 1970."""

    event: Event
    problems: list[str]
    gateway: str
    at: float

    @property
    def id(self) -> str:
        """The identifier of the message, the same at each attempt. After a crash, a channel may get
        a message twice, and the receiver can recognise the duplicate.
        """
        text = json.dumps([self.event, self.problems, self.gateway, self.at])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def public(self) -> dict[str, Any]:
        return asdict(self) | {"id": self.id}

    @property
    def title(self) -> str:
        if self.event == "test":
            return f"Onceway {self.gateway}: a test"
        count = amount(len(self.problems), "problem")
        return f"Onceway {self.gateway}: {count} {_VERBS[self.event]}"

    @property
    def text(self) -> str:
        return "\n".join(self.problems) or "Notifications of this gateway arrive here."


_VERBS: dict[Event, str] = {"begins": "began", "ends": "ended", "goes on": "not yet ended"}


@dataclass(slots=True)
class _Known:
    """One known problem. since: when the problem began. reported: time of the last message about
    the problem; None before the first one, and after its end was reported. text: the problem's
    words in the last message. away: time at which the problem became absent; after the report of
    its end, the time of that report; None while the problem is present. ends: number of times that
    its end was reported, without an absence of RELAPSE_S in between.
    """

    since: float
    reported: float | None = None
    text: str = ""
    away: float | None = None
    ends: int = 0

    def is_back(self, now: float) -> None:
        """Record that the problem is present."""
        begins = self.away is not None and self.reported is None
        self.since = now if begins else min(self.since, now)  # `min`: the clock may have been ahead
        self.reported = None if self.reported is None else min(self.reported, now)
        self.away = None

    def is_away(self, now: float) -> float:
        """Record that the problem is absent. Return for how many seconds it has been absent."""
        self.away = now if self.away is None else min(self.away, now)
        return now - self.away

    def end(self, at: float) -> None:
        """Record that the end was reported."""
        self.reported, self.away, self.ends = None, at, self.ends + 1


class Notices:
    """The problems that were reported. folder: the data directory. after_s: how long a problem must
    last before it is reported, and how long it must be over before its end is reported. repeat_s:
    time after which a lasting problem is reported again; 0: never.
    """

    def __init__(self, folder: Path, gateway: str, after_s: float, repeat_s: float) -> None:
        self._file = folder / FILE
        self._gateway = gateway
        self._after_s = after_s
        self._repeat_s = repeat_s
        self._known = _read(self._file)
        self._before = set(self._known)
        """Problems that were known before this start."""
        self._started: float | None = None
        self._failed: str | None = None
        self._kept = self._state()

    def recall(self, waiting: Iterable[Message]) -> None:
        """Take over the problems of messages that still wait to be sent: as reported, or as ended.
        The file lacks these problems if the gateway died before `keep`.
        """
        for message in waiting:
            for text in message.problems:
                one = self._called(text)
                known = self._known.setdefault(one, _Known(message.at, text=text))
                if message.event == "ends":
                    known.end(message.at)
                else:
                    known.reported = max(known.reported or 0.0, message.at)
        self._before = set(self._known)

    def _called(self, text: str) -> str:
        """Return the identifier of the known problem whose last text is `text`. If there is none,
        return the text without its numbers, which is the problem's identifier until `take` gets the
        true one.
        """
        found = (one for one, known in self._known.items() if known.text == text)
        return next(found, without_figures(text))

    def take(self, problems: dict[str, str], now: float, *, quiet: bool = False) -> list[Message]:
        """Return the messages that are due. problems: words by identifier. quiet: return no message
        now; a later call returns the messages that are still due then. Call `keep` once the
        messages are on disk.
        """
        present = dict(islice(problems.items(), MOST))
        for one, text in present.items():
            called = without_figures(text)  # its identifier until 0.2.1
            if one not in self._known and called in self._known:
                self._known[one] = self._known.pop(called)
                self._before = {one if name == called else name for name in self._before}
            self._known.setdefault(one, _Known(now, text=text)).is_back(now)
        self._started = now if self._started is None else self._started
        if now - self._started >= SETTLE_S:
            self._before.clear()
        due = {"begins": [], "ends": [], "goes on": []}  # type: dict[Event, list[str]]
        due["ends"] = self._ended([one for one in self._known if one not in present], now, quiet)
        for one, text in () if quiet else present.items():
            known = self._known[one]
            if known.reported is None and now - known.since >= self._after_s:
                due["begins"].append(text)
            elif (
                known.reported is not None
                and self._repeat_s
                and now - known.reported >= self._repeat_s
            ):
                due["goes on"].append(text)
            else:
                continue
            known.reported, known.text = now, text
        return [Message(event, texts, self._gateway, now) for event, texts in due.items() if texts]

    def _ended(self, absent: list[str], now: float, quiet: bool) -> list[str]:
        """Return the texts of the absent problems whose end must be reported now; nothing if
        `quiet`. Forget problems that were never reported, or whose end was reported long ago.
        """
        found = []
        for one in absent:
            known = self._known[one]
            away_s = known.is_away(now)
            if one in self._before:
                continue
            if known.reported is None:
                if not known.ends or away_s >= RELAPSE_S or len(self._known) > 2 * MOST:
                    del self._known[one]
            elif away_s >= self._calm_s(known.ends) and not quiet:
                found.append(known.text or one)
                known.end(now)
        return found

    def _calm_s(self, ends: int) -> float:
        """Return for how many seconds a problem must be absent before its end is reported. ends:
        number of its ends that were reported before, without an absence of RELAPSE_S in between.
        """
        if not ends or self._after_s > RELAPSE_S:
            return self._after_s
        return float(min(max(self._after_s, 1.0) * SLOWER**ends, RELAPSE_S))

    def _state(self) -> str:
        return json.dumps({one: asdict(known) for one, known in self._known.items()})

    def keep(self) -> None:
        """Write the reported problems to their file if they have changed. A disk error is only
        logged.
        """
        state = self._state()
        if state == self._kept:
            return
        new = self._file.with_suffix(".new")
        try:
            new.write_text(state)
            os.replace(new, self._file)
            self._kept, self._failed = state, None
        except OSError as error:
            if self._failed != error.strerror:
                log.error(
                    "%s: cannot write which problems were reported (%s)", self._file, error.strerror
                )
            self._failed = error.strerror


def _read(file: Path) -> dict[str, _Known]:
    try:
        found = json.loads(file.read_text())
        return {str(one): _Known(**row) for one, row in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
