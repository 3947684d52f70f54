"""Decides which problems to report, and when.

In: the current problems. Out: messages, each once; and `DATA/notices.json`, so that a
restart repeats no message. A problem is known by its identifier, because its words may change while
it lasts, such as the reason of an outage.
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
"""Largest number of problems that are remembered, and of messages that wait for one channel."""
SETTLE_S = 30.0
"""Seconds after a start before an older problem may end: the first checks do not see everything."""

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
        """The identifier of the message: the same text at each attempt. After a crash, a channel
        may get a message twice.
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
    """One known problem. since: when the problem began. told: time of the last message about the
    problem; None before the first one. text: its words in that message.
    """

    since: float
    told: float | None = None
    text: str = ""


class Notices:
    """The problems that were reported. folder: the data directory. after_s: how long a problem must
    last before it is reported. repeat_s: time after which a lasting problem is reported again; 0:
    never.
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
        """Note messages that wait for a channel: the gateway may have died before `keep`."""
        for message in waiting:
            for text in message.problems:
                one = self._called(text)
                if message.event == "ends":
                    self._known.pop(one, None)
                else:
                    known = self._known.setdefault(one, _Known(message.at, text=text))
                    known.told = max(known.told or 0.0, message.at)
        self._before = set(self._known)

    def _called(self, text: str) -> str:
        """Return the identifier of a problem that was reported with these words. Without one, it is
        the words without figures, until `take` finds the problem.
        """
        found = (one for one, known in self._known.items() if known.text == text)
        return next(found, without_figures(text))

    def take(self, problems: dict[str, str], now: float, *, quiet: bool = False) -> list[Message]:
        """Return the messages that are due. problems: words by identifier. quiet: report nothing
        now, but after the quiet time. Call `keep` once the messages are on disk.
        """
        present = dict(islice(problems.items(), MOST))
        for one, text in present.items():
            called = without_figures(text)  # its identifier until 0.2.1
            if one not in self._known and called in self._known:
                self._known[one] = self._known.pop(called)
                self._before = {one if name == called else name for name in self._before}
            known = self._known.setdefault(one, _Known(now, text=text))
            known.since = min(known.since, now)  # the clock was ahead
            known.told = None if known.told is None else min(known.told, now)
        self._started = now if self._started is None else self._started
        if now - self._started >= SETTLE_S:
            self._before.clear()
        gone = [one for one in self._known if one not in present and one not in self._before]
        told = {"begins": [], "ends": [], "goes on": []}  # type: dict[Event, list[str]]
        for one in gone:
            if self._known[one].told is None:
                del self._known[one]  # never reported
            elif not quiet:
                told["ends"].append(self._known.pop(one).text or one)
        for one, text in () if quiet else present.items():
            known = self._known[one]
            if known.told is None and now - known.since >= self._after_s:
                told["begins"].append(text)
            elif known.told is not None and self._repeat_s and now - known.told >= self._repeat_s:
                told["goes on"].append(text)
            else:
                continue
            known.told, known.text = now, text
        return [Message(event, texts, self._gateway, now) for event, texts in told.items() if texts]

    def _state(self) -> str:
        return json.dumps({one: asdict(known) for one, known in self._known.items()})

    def keep(self) -> None:
        """Write the file if the reported problems have changed."""
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
