"""Background jobs: work that no request waits for, such as checkpoints and saved files.

In: begin, success and failure of each job, from any thread. Out: a problem as a sentence once a job
is overdue, figures for the metrics, and one log line when a job begins to fail and when it succeeds
again.
"""

import logging
import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from gateway.errors import OncewayError
from gateway.system.causes import UNKNOWN, cause

log = logging.getLogger(__name__)

FILE_S = 60.0
"""Seconds for which the write of a file may hang or fail before this is reported as a problem."""
FORGET_S = 3600.0
"""Seconds for which an internal error in the background is shown as a problem."""
LOOP_S = 60.0
"""Longest time in seconds that may pass between two rounds of a loop. Normally a second passes."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Job:
    """A background job. name: label of the metrics. failure: the failed work, as a clause ("X is
    not done"). bound_s: longest time in seconds from `begin` to `succeed`. clock: monotonic, in
    seconds.
    """

    def __init__(
        self, name: str, failure: str, bound_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self.name = name
        self.failure = failure
        self.bound_s = bound_s
        self.failures = 0
        """Number of failures since the start."""
        self.error: str | None = None
        """The last failure in words; None after a success."""
        self.todo = ""
        """The remedy for the last failure; empty if none is known."""
        self._clock = clock
        self._succeeded = clock()
        self._due: float | None = None

    @property
    def age_s(self) -> float:
        """Seconds since the last success; without one, since the start."""
        return self._clock() - self._succeeded

    @property
    def overdue(self) -> bool:
        """Whether the job was begun and has not succeeded within its bound."""
        due = self._due
        return due is not None and self._clock() - due > self.bound_s

    @property
    def problem(self) -> str | None:
        """The problem as a sentence, or None."""
        if not self.overdue:
            return None
        return (
            f"{self.failure} for more than {self.bound_s:.0f} s"
            f" ({self.error or 'the attempt does not end'})"
        )

    def begin(self) -> None:
        """Note that there is work. Further calls before the next success change nothing."""
        if self._due is None:
            self._due = self._clock()

    def succeed(self) -> None:
        """Note a success: no work is outstanding."""
        self._due, self._succeeded = None, self._clock()
        if self.error is not None:
            self.error, self.todo = None, ""
            log.warning("this problem is over: %s", self.failure)

    def go_round(self) -> None:
        """Note that a loop has finished a round, and that its next round begins."""
        self.succeed()
        self.begin()

    def fail(self, error: Exception) -> None:
        """Note a failure. Only the first failure after a success is logged."""
        self.begin()
        self.failures += 1
        first = self.error is None
        known = cause(error)
        self.todo = "" if known is UNKNOWN else known.todo
        timed_out = isinstance(error, TimeoutError)
        text = str(error) or ("it takes too long" if timed_out else type(error).__name__)
        self.error = text if known is UNKNOWN else f"{known.reason}: {text}"
        if first:
            expected = known is not UNKNOWN or isinstance(error, OncewayError | TimeoutError)
            internal = None if expected else error
            log.error("%s (%s). Trying again", self.failure, self.error, exc_info=internal)


class InternalErrors(Job):
    """Errors of tasks and timers that belong to no other job. They are a problem for FORGET_S after
    the last error. clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__("internal", "an internal error in the background", FORGET_S, clock)
        self._last: float | None = None

    @property
    def problem(self) -> str | None:
        """The last error as a sentence; None if there was no error, or none in the last FORGET_S
        seconds.
        """
        if self._last is None or self._clock() - self._last > FORGET_S:
            return None
        return f"{self.failure}: {self.error}. Please report this error with its lines of the log"

    def take(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception of an event loop (`loop.set_exception_handler`): log it, and show it
        as a problem. An OSError is only logged, because a peer may cause it.
        """
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.error = str(error) or type(error).__name__
            self.failures += 1
            self._last = self._clock()
        loop.default_exception_handler(context)


class SavedFile:
    """A small file that a job writes again and again. Each write replaces the whole file. There is
    no fsync, so the last state may be lost in a power cut. content: a noun phrase for the content,
    used in the text of the problem. mode: the file's permissions.
    """

    def __init__(self, file: Path, content: str, mode: int = 0o666) -> None:
        self.job = Job(file.name, f"{file}: {content} cannot be written", FILE_S)
        self.unwritten: str | None = None
        """The text of the last write if it failed; the caller has to write again. None after a
        success.
        """
        self._file = file
        self._mode = mode
        self._writing = Lock()

    def write(self, text: str) -> None:
        """Write the file atomically. If that fails, note the error in `job` and the text in
        `unwritten`. May be called on any thread.
        """
        self.job.begin()
        new = self._file.with_suffix(".new")
        with self._writing:
            try:
                with open(os.open(new, _NEW, self._mode), "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(new, self._file)
            except OSError as error:
                self.unwritten = text
                self.job.fail(error)
            else:
                self.unwritten = None
                self.job.succeed()
