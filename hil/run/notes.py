"""Events for the errors of a run. In: an error. Out: a line on the display, and an event: `ended`
of a program under test if this program ended by itself, otherwise `broken` of the rig.
"""

import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from gateway.errors import OncewayError
from hil.observe.history import History
from hil.programs.process import EndedError
from hil.run.display import Display


class Notes:
    """Records errors of a run in its history. services: names of the programs under test."""

    def __init__(self, history: History, display: Display, services: Collection[str]) -> None:
        self._services = services
        self._history = history
        self._display = display

    @contextmanager
    def noting(self) -> Iterator[None]:
        """If an error ends the block, record it in the history, and continue after the block."""
        try:
            yield
        except* Exception as group:
            for error in _single_errors(group):
                self.note(error)

    def note(self, error: Exception) -> None:
        if isinstance(error, EndedError) and error.name in self._services:
            self._history.add(error.name, "ended", how=error.how, last_words=error.last_words)
        else:
            words = error.last_words if isinstance(error, EndedError) else []
            # a mistake in the rig: show where
            if not isinstance(error, OncewayError):
                words = "".join(traceback.format_exception(error)).splitlines()
            self._history.add("rig", "broken", why=_one_line(error), last_words=words)
        self._display.say(f"  {_one_line(error)}", "red")


def _one_line(error: Exception) -> str:
    if isinstance(error, EndedError):
        return error.what
    return (
        " ".join(str(error).split())
        if isinstance(error, OncewayError)
        else f"{type(error).__name__}: {error}"
    )


def _single_errors(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """Yield the errors in a group and in the groups that it contains."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _single_errors(error)
        else:
            yield error
