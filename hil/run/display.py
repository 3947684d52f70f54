"""Display of a run: stages, faults as they happen, counts at each hop. In: calls from the run. Out:
on a terminal, lines that scroll above a live footer; elsewhere plain lines, with the counts every
few seconds. Errors of the run are also recorded in the history (`Notes`).
"""

import time
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gateway.errors import OncewayError
from hil.observe.history import History
from hil.programs.process import EndedError

PLAIN_COUNTS_EVERY = 5.0  # s


class Display:
    """The progress of a run on the console, a context manager. total: number of publications."""

    def __init__(
        self,
        title: str,
        stages: tuple[str, ...],
        total: int,
        faults: int,
        console: Console | None = None,
    ) -> None:
        self._console = console or Console()
        self._title = title
        self._stages = dict.fromkeys(stages, "·")
        self._total, self._faults = total, faults
        self._start = time.monotonic()
        self._happened = 0
        self._counts: dict[str, int] = {}
        self._printed_counts: dict[str, int] = {}
        self._printed_at = self._start
        self._live = (
            Live(get_renderable=self._footer, console=self._console, refresh_per_second=4)
            if self._console.is_terminal
            else None
        )

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._stages[name] = "●"
        self.say(name, "bold")
        yield
        self._stages[name] = "✓"

    def fault(self, text: str) -> None:
        """Show a planned fault that happened."""
        self._happened += 1
        self.say(f"  ⚡ {text}", "yellow")

    def say(self, text: str, style: str = "") -> None:
        line = Text(f"{self._elapsed()}  ", "dim").append(text, style)
        self._console.print(line, soft_wrap=True)

    def counts(self, counts: Mapping[str, int]) -> None:
        self._counts = dict(counts)
        now = time.monotonic()
        if (
            self._live is None
            and self._counts != self._printed_counts
            and now - self._printed_at >= PLAIN_COUNTS_EVERY
        ):
            self.say("    " + self._counts_line())
            self._printed_counts, self._printed_at = self._counts, now

    def _counts_line(self) -> str:
        return (
            " → ".join(f"{value} {name}" for name, value in self._counts.items())
            + f" · {self._happened} of {self._faults} planned faults"
        )

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        return f"{minutes:02d}:{seconds:02d}"

    def _footer(self) -> RenderableType:
        stages = Text("  ").join(
            Text(f"{mark} {name}", "bold" if mark == "●" else "dim")
            for name, mark in self._stages.items()
        )
        bars = Table.grid(padding=(0, 1))
        for name, value in self._counts.items():
            bars.add_row(
                Text(name),
                ProgressBar(total=self._total, completed=value, width=40),
                Text(f"{value}", justify="right"),
            )
        bars.add_row(
            Text("planned faults"),
            ProgressBar(
                total=self._faults, completed=self._happened, width=40, complete_style="red"
            ),
            Text(f"{self._happened}"),
        )
        head = Text(f"{self._title}   {self._elapsed()}", "bold cyan")
        return Group(Text(), head, stages, bars)


class Notes:
    """Records each error of a run in its history: `ended` of a program under test if this program
    ended by itself, otherwise `broken` of the rig. services: names of the programs under test.
    """

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
